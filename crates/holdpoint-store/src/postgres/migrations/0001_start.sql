-- Times are milliseconds since 1970 by this database's clock. Every key begins with the tenant, ids are made by the
-- application: no sequences, no triggers, no foreign keys, so that tenants can live on several databases.

CREATE TABLE instance (
    instance_id uuid PRIMARY KEY,
    expires_at  bigint NOT NULL
);

CREATE TABLE tool_set (
    tenant_id text  NOT NULL,
    digest    bytea NOT NULL,
    tools     bytea NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);

CREATE TABLE conversation (
    tenant_id text NOT NULL,
    name      text NOT NULL,
    actor     text NOT NULL,
    last_run  uuid NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- owner: the instance that carries it on. wake_at: from when on anybody may take one that has no owner; NULL where it
-- waits for a person or has ended. previous: the run before it in the conversation.
CREATE TABLE run (
    tenant_id        text     NOT NULL,
    run_id           uuid     NOT NULL,
    status           smallint NOT NULL,
    owner            uuid,
    wake_at          bigint,
    epoch            bigint   NOT NULL,
    next_seq         bigint   NOT NULL,
    step_seq         bigint   NOT NULL,
    open_requests    integer  NOT NULL,
    committed_round  integer  NOT NULL,
    cancel           smallint,
    cancel_by        text,
    cancel_at        bigint,
    claims           integer  NOT NULL,
    created_at       bigint   NOT NULL,
    actor            text     NOT NULL,
    previous         uuid,
    tool_digest      bytea,
    audit_records    bigint   NOT NULL,
    audit_hash       bytea    NOT NULL,
    snapshot_version integer  NOT NULL,
    snapshot         bytea    NOT NULL,
    PRIMARY KEY (tenant_id, run_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX run_owned ON run (owner) WHERE owner IS NOT NULL;
CREATE INDEX run_ready ON run (wake_at) WHERE owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX run_quarantined ON run (tenant_id) WHERE status = 5;

-- What each transaction added to a run, in one row; seq is the number of its last event.
CREATE TABLE journal (
    tenant_id text   NOT NULL,
    run_id    uuid   NOT NULL,
    seq       bigint NOT NULL,
    body      bytea  NOT NULL,
    PRIMARY KEY (tenant_id, run_id, seq)
);

-- seq is the number of the event that announced the request: its text is there and not here.
CREATE TABLE request (
    tenant_id  text     NOT NULL,
    request_id uuid     NOT NULL,
    run_id     uuid     NOT NULL,
    seq        bigint   NOT NULL,
    round      integer  NOT NULL,
    call       integer  NOT NULL,
    kind       smallint NOT NULL,
    revision   integer  NOT NULL,
    digest     bytea    NOT NULL,
    deadline   bigint,
    opened_at  bigint   NOT NULL,
    status     smallint NOT NULL,
    closure    bytea,
    PRIMARY KEY (tenant_id, request_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX request_age ON request (tenant_id, status, opened_at, run_id, seq);
CREATE INDEX request_of_run ON request (tenant_id, run_id);
CREATE INDEX request_due ON request (deadline) WHERE status = 0 AND deadline IS NOT NULL;

-- The ledger of executions. The key is what makes a second claim on one attempt impossible.
CREATE TABLE execution (
    tenant_id  text    NOT NULL,
    run_id     uuid    NOT NULL,
    round      integer NOT NULL,
    call       integer NOT NULL,
    attempt    integer NOT NULL,
    digest     bytea   NOT NULL,
    request_id uuid,
    started_at bigint  NOT NULL,
    ended_at   bigint,
    status     text,
    executed   text,
    PRIMARY KEY (tenant_id, run_id, round, call, attempt)
);

CREATE TABLE idempotency (
    tenant_id   text   NOT NULL,
    actor       text   NOT NULL,
    scope       text   NOT NULL,
    key         text   NOT NULL,
    body_digest text   NOT NULL,
    at          bigint NOT NULL,
    run_id      uuid,
    http_status integer,
    body        text,
    PRIMARY KEY (tenant_id, actor, scope, key)
);
