-- An entry in this index for every refusal, also where no key is known: the 401 of an unknown key must not leave sooner than a
-- known one's because its entry is written with less work.
drop index audit_log_by_key;
create index audit_log_by_key on audit_log (key_id, occurred_at);
