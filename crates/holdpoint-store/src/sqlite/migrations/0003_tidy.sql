-- What can go, found without looking at everything: conversations by the age of their last run, keys by their run or their age.
CREATE INDEX conversation_age ON conversation (last_run);
CREATE INDEX idempotency_of_run ON idempotency (tenant, run) WHERE run IS NOT NULL;
CREATE INDEX idempotency_age ON idempotency (at) WHERE run IS NULL;
