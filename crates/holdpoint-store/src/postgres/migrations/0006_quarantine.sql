-- A run that is set aside has one open request (kind 3, under round 0: it is about the run and not about a call), whichever
-- instances find it at the same time. A version that does not know it would read it as a damaged row, and stays away because
-- of this file.
CREATE UNIQUE INDEX request_quarantine ON request (tenant_id, run_id) WHERE kind = 3 AND status = 0;
