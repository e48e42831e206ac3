"""Private classifiers of several parties who keep their records."""
