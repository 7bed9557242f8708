-- What can go, found without looking at everything: conversations by the age of their last run, keys by their run or their age.
CREATE INDEX conversation_age ON conversation (last_run);
CREATE INDEX idempotency_of_run ON idempotency (tenant_id, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX idempotency_age ON idempotency (at) WHERE run_id IS NULL;

-- The journal is most of the database. Run ids begin with the time, so a range of them is a time: a partition for each week, which
-- goes as a whole once nothing of it is kept. What there is becomes the part before the first of them, which begins two weeks
-- from now, or after the newest run where a clock is ahead. What fits nowhere - the clock of an instance that is years ahead - is
-- in journal_other.
ALTER TABLE journal RENAME TO journal_first;
ALTER TABLE journal_first RENAME CONSTRAINT journal_pkey TO journal_first_pkey;
CREATE TABLE journal (
    tenant_id text   NOT NULL,
    run_id    uuid   NOT NULL,
    seq       bigint NOT NULL,
    body      bytea  NOT NULL,
    PRIMARY KEY (tenant_id, run_id, seq)
) PARTITION BY RANGE (run_id);
DO $$
DECLARE
    week   constant bigint := 604800000;
    now_ms constant bigint := extract(epoch FROM clock_timestamp()) * 1000;
    newest bigint;
    bound  text;
BEGIN
    SELECT ('x' || substr(replace(max(run_id::text), '-', ''), 1, 12))::bit(48)::bigint INTO newest FROM journal_first;
    bound := lpad(to_hex((greatest(now_ms, coalesce(newest, 0)) / week + 2) * week), 12, '0');
    EXECUTE format('ALTER TABLE journal ATTACH PARTITION journal_first FOR VALUES FROM (MINVALUE) TO (%L)',
                   substr(bound, 1, 8) || '-' || substr(bound, 9, 4) || '-0000-0000-000000000000');
END $$;
CREATE TABLE journal_other PARTITION OF journal DEFAULT;
