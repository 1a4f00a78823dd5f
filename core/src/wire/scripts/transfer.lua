-- TRANSFER: locks all resources for a token if the token of the giver holds all of them; otherwise locks
-- none. To upgrade a reader, locks the resources exclusively if the giver is their only reader. Returns one
-- of:
--   {1, fence, time}              granted
--   {2, 0}                        the token already holds a resource
--   {0, expires_in, time, token}  refused
--
-- `time` is the node's clock in microseconds. If a lock key or the share to upgrade is missing, `expires_in` is -2.
-- Otherwise, a lock key has another value than the giver's token: `expires_in` is the time until this key expires, in
-- milliseconds (-1: never), and `token` is the value, cut to one byte more than the length of the longest token ('' if
-- the value is not a string). If several lock keys have other values, `token` is not MARKER if possible: MARKER does
-- not say which readers hold the resource.
--
-- KEYS: for each resource the lock key, the fence key, the queue, and the readers; for a permit the index
-- instead of the readers (see readers.lua).
-- ARGV: the token, the ttl of the lock, the proposed fence, the minimum ttl of the fence key, the token of
-- the giver, '1' for an upgrade, else '0', and for permits the common beginning of all lock keys. All ttls
-- are in milliseconds.

--- pttl.lua
--- fence.lua
--- readers.lua
--- tries.lua
--- index.lua
local giver, is_upgrade, base = ARGV[5], ARGV[6] == '1', ARGV[7]
local other, expires_in, is_missing, is_own = nil, 0, false, false
for i = 1, #KEYS, EACH do
  local lock, readers = KEYS[i], base and KEYS[i] or KEYS[i + 3]
  local value = redis.pcall('GET', lock)
  is_own = is_own or holds(lock, readers, token)
  local is_given = holds(lock, readers, giver)
  if is_upgrade then
    is_missing = is_missing or value == MARKER and readers ~= lock and not is_given
    is_given = value == giver or reads_alone(lock, readers, giver)
  end
  if not value then
    is_missing = true
  elseif not is_given and (not other or value ~= MARKER) then
    other = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    expires_in = pttl[lock]
  end
end
if is_own then return {2, 0} end
if is_missing then return {0, -2, now, ''} end
if other then return {0, expires_in, now, other} end
for i = 1, #KEYS, EACH do
  local lock, readers = KEYS[i], base and KEYS[i] or KEYS[i + 3]
  local error = first_error({keep_value(lock)}) or readers ~= lock and cannot_change(lock, readers)
  if error then return error end
end
for i = 1, #KEYS, EACH do
  local lock, readers = KEYS[i], base and KEYS[i] or KEYS[i + 3]
  if is_upgrade then
    -- If the upgrade fails, the giver's lease continues. So the upgrade must not make any lock key expire earlier, not
    -- even a key that the giver already holds exclusively.
    local kept = lasting(lock, tonumber(ttl))
    if readers ~= lock then redis.call('ZREMRANGEBYSCORE', readers, '-inf', '+inf') end
    redis.call('SET', lock, token, 'PX', string.format('%.0f', kept))
  elseif readers == lock then
    redis.call('SET', lock, token, 'PX', ttl)
  elseif redis.call('GET', lock) == giver then
    -- The DOWNGRADE of the giver has not arrived yet, so the giver still holds the key exclusively.
    begin_reading(lock, readers, token, tonumber(ttl))
  else
    join_readers(lock, readers, token, tonumber(ttl))
    stop_reading(lock, readers, giver)
  end
  redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
  if base then update_index(KEYS[i + 3], base, lock, tonumber(ttl)) end
end
return {1, fence, now}
