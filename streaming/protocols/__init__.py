"""From messages to blocks of rows: ``contract`` says how, each protocol's folder does so, and
``decoders`` names them."""
