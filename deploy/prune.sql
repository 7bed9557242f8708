-- Deletes old conversations from a PostgreSQL database of Holdpoint: those whose last run has ended and began longer ago than
-- `keep`. Whole conversations, because a later run reads what the earlier ones said. Their audit goes with them: export first
-- what you must keep (holdpoint audit RUN). May run while instances do; what waits or runs is never touched.
--
--   psql "$HOLDPOINT_DATABASE_URL" -v ON_ERROR_STOP=1 -v keep="'90 days'" -f deploy/prune.sql
BEGIN;

-- Locked, so that no new run joins one of them meanwhile.
CREATE TEMP TABLE old_conversation ON COMMIT DROP AS
    SELECT c.tenant_id, c.name, c.last_run
    FROM conversation c JOIN run r ON r.tenant_id = c.tenant_id AND r.run_id = c.last_run
    WHERE r.status IN (3, 4)
      AND r.created_at < (extract(epoch FROM clock_timestamp() - interval :keep) * 1000)::bigint
    FOR UPDATE OF c SKIP LOCKED;

CREATE TEMP TABLE old_run ON COMMIT DROP AS
    WITH RECURSIVE chain AS (
        SELECT tenant_id, last_run AS run_id FROM old_conversation
        UNION
        SELECT r.tenant_id, r.previous FROM chain JOIN run r USING (tenant_id, run_id) WHERE r.previous IS NOT NULL
    )
    SELECT tenant_id, run_id FROM chain;

DELETE FROM journal   USING old_run o WHERE journal.tenant_id = o.tenant_id AND journal.run_id = o.run_id;
DELETE FROM request   USING old_run o WHERE request.tenant_id = o.tenant_id AND request.run_id = o.run_id;
DELETE FROM execution USING old_run o WHERE execution.tenant_id = o.tenant_id AND execution.run_id = o.run_id;
DELETE FROM idempotency USING old_run o WHERE idempotency.tenant_id = o.tenant_id AND idempotency.run_id = o.run_id;
DELETE FROM conversation USING old_conversation o WHERE conversation.tenant_id = o.tenant_id AND conversation.name = o.name;
DELETE FROM run       USING old_run o WHERE run.tenant_id = o.tenant_id AND run.run_id = o.run_id;

-- Answers that are kept for whoever repeats a request: a week is long enough.
DELETE FROM idempotency
WHERE run_id IS NULL AND at < (extract(epoch FROM clock_timestamp() - interval '7 days') * 1000)::bigint;

-- Instances that are gone: an hour after its lease nobody asks for one any more.
DELETE FROM instance WHERE expires_at < (extract(epoch FROM clock_timestamp() - interval '1 hour') * 1000)::bigint;

SELECT count(*) AS runs_deleted FROM old_run;
COMMIT;
