"""What operators decide, stored beside the tables."""
