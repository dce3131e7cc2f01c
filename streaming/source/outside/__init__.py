"""What messages only refer to: rows in claim-check storage, and schemas in a registry."""
