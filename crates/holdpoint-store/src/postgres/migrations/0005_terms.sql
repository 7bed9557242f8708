-- What happens to a request that nobody decides. deadline is from now on the time after which it can be decided no longer:
-- one that stays open (on_timeout = 1) has wait_until instead, which only reminds. on_timeout: 0 deny, 1 wait, 2 a preset is
-- asked, 3 leave. terms: all of it, where there is more to it than a deadline.
ALTER TABLE request
    ADD COLUMN on_timeout   smallint NOT NULL DEFAULT 0,
    ADD COLUMN wait_until   bigint,
    ADD COLUMN escalate_at  bigint,
    ADD COLUMN escalated_at bigint,
    ADD COLUMN reminders    integer  NOT NULL DEFAULT 0,
    ADD COLUMN terms        bytea;

CREATE INDEX request_remind ON request (escalate_at) WHERE status = 0 AND escalate_at IS NOT NULL;
CREATE INDEX request_overdue ON request (wait_until) WHERE status = 0 AND wait_until IS NOT NULL;
