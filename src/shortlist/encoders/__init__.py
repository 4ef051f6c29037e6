"""From word ids to features. An encoder knows nothing about labels."""
