-- What tools did under business keys. Reserved (ended_at IS NULL) before the tool is called; the result stays, so that a second
-- call for the same request of the world outside is answered with it and does nothing.
CREATE TABLE effect (
    tenant_id  text   NOT NULL,
    tool       text   NOT NULL,
    key        text   NOT NULL,
    exec_id    uuid   NOT NULL,
    arguments  bytea  NOT NULL,
    started_at bigint NOT NULL,
    ended_at   bigint,
    result     text,
    PRIMARY KEY (tenant_id, tool, key)
);
