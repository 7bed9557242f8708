-- What a call brought after its run was taken over: refused as its outcome, and kept for whoever is asked what became of it.
CREATE TABLE late_result (
    tenant_id  text   NOT NULL,
    run_id     uuid   NOT NULL,
    request_id uuid   NOT NULL,
    at         bigint NOT NULL,
    result     text   NOT NULL,
    PRIMARY KEY (tenant_id, run_id, request_id)
);
