"""A standing attacker: searches for promises that are not kept, and says how close it came."""
