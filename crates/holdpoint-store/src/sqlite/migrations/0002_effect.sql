-- What tools did under business keys. Reserved (ended_at IS NULL) before the tool is called; the result stays, so that a second
-- call for the same request of the world outside is answered with it and does nothing.
CREATE TABLE effect (
    tenant     INTEGER NOT NULL,
    tool       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    exec       BLOB    NOT NULL,
    arguments  BLOB    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    result     TEXT,
    PRIMARY KEY (tenant, tool, key)
) STRICT, WITHOUT ROWID;
