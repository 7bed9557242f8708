-- Times are integer milliseconds since 1970, ids are 16 bytes, digests 32 bytes.
-- Tenants and tool sets go by number, so that their names are stored once.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('incarnation', 0);

CREATE TABLE tenant (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE tool_set (
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    tools  BLOB NOT NULL
) STRICT;

CREATE TABLE conversation (
    tenant   INTEGER NOT NULL,
    name     TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    last_run BLOB    NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- owner: NULL where there is nothing to do, 0 where anybody may take it from wake_at on, else the incarnation of the
-- process that carries it on. previous: the run before it in the conversation. snapshot: the control state.
CREATE TABLE run (
    tenant           INTEGER NOT NULL,
    id               BLOB    NOT NULL,
    status           INTEGER NOT NULL,
    owner            INTEGER,
    wake_at          INTEGER,
    epoch            INTEGER NOT NULL,
    next_seq         INTEGER NOT NULL,
    step_seq         INTEGER NOT NULL,
    open             INTEGER NOT NULL,
    committed_round  INTEGER NOT NULL,
    cancel           INTEGER,
    cancel_by        TEXT,
    cancel_at        INTEGER,
    claims           INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    actor            TEXT    NOT NULL,
    previous         BLOB,
    tool_set         INTEGER,
    audit_records    INTEGER NOT NULL,
    audit_hash       BLOB    NOT NULL,
    snapshot_version INTEGER NOT NULL,
    snapshot         BLOB    NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- Only runs that somebody carries on, or may: a waiting run is not in it.
CREATE INDEX run_work ON run (owner, wake_at) WHERE owner IS NOT NULL;
CREATE INDEX run_quarantined ON run (tenant) WHERE status = 5;

-- What each transaction added to a run, in one row; seq is the number of its last event.
CREATE TABLE journal (
    tenant INTEGER NOT NULL,
    run    BLOB    NOT NULL,
    seq    INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    PRIMARY KEY (tenant, run, seq)
) STRICT, WITHOUT ROWID;

-- seq is the number of the event that announced the request: its text is there and not here.
CREATE TABLE request (
    tenant    INTEGER NOT NULL,
    run       BLOB    NOT NULL,
    seq       INTEGER NOT NULL,
    id        BLOB    NOT NULL,
    round     INTEGER NOT NULL,
    call      INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    digest    BLOB    NOT NULL,
    deadline  INTEGER,
    opened_at INTEGER NOT NULL,
    status    INTEGER NOT NULL,
    closure   BLOB,
    PRIMARY KEY (tenant, run, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX request_id ON request (id);
CREATE INDEX request_age ON request (tenant, status, opened_at, run, seq);
CREATE INDEX request_due ON request (deadline) WHERE status = 0 AND deadline IS NOT NULL;

-- The ledger of executions. The key is what makes a second claim on one attempt impossible.
CREATE TABLE execution (
    tenant     INTEGER NOT NULL,
    run        BLOB    NOT NULL,
    round      INTEGER NOT NULL,
    call       INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    digest     BLOB    NOT NULL,
    request    BLOB,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    status     TEXT,
    executed   TEXT,
    PRIMARY KEY (tenant, run, round, call, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    tenant      INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    body_digest TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    run         BLOB,
    http_status INTEGER,
    body        TEXT,
    PRIMARY KEY (tenant, actor, scope, key)
) STRICT, WITHOUT ROWID;
