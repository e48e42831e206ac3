"""``python -m benches.papers``."""

from benches.papers.command import main

raise SystemExit(main())
