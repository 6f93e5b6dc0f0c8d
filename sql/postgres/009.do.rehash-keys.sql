-- Stores keys under another hash: [{"id": …, "from": hex, "to": hex}]. A key whose hash is no
-- longer `from` stays as it is.
create function rehash_keys(hashes json, secret_id text) returns void language sql as $$
  with asked as (
    select h.id, decode(h."from", 'hex') as old_hash, decode(h."to", 'hex') as new_hash
    from json_to_recordset(hashes) as h (id text, "from" text, "to" text)
  ), locked as (
    select k.id, asked.new_hash from asked join api_keys k on k.id = asked.id and k.key_hash = asked.old_hash
    order by k.id
    for update of k
  )
  update api_keys k set key_hash = locked.new_hash, hash_secret_id = secret_id from locked where k.id = locked.id
$$;
