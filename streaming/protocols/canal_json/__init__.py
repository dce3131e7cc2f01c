from streaming.protocols.canal_json.decoder import decode as decode
