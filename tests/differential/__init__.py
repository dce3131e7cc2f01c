"""Random tables, sessions and DDLs on real servers, each cell compared with the server's own."""
