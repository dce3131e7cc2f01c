"""A shop in TiDB as its TiCDC changefeed writes it to Kafka, and what its tables must hold."""
