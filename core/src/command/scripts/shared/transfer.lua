-- TRANSFER with at least one resource in shared mode. Returns the same as transfer.lua. To upgrade a
-- reader, it locks the resources exclusively where the giver is the only reader.
--
-- KEYS: for each resource the lock key, the fence key, the queue, and the readers (see readers.lua).
-- ARGV: as in transfer.lua, and '1' for an upgrade, else '0'.

-- What remains of a key is read before the clock: see readers.lua.
local pttl = {}
for i = 1, #KEYS, 4 do
  for _, key in ipairs({KEYS[i], KEYS[i + 3]}) do pttl[key] = redis.call('PTTL', key) end
end
--- fence.lua
--- readers.lua
local giver, is_upgrade = ARGV[5], ARGV[6] == '1'
local other, expires_in, is_missing, is_own = nil, 0, false, false
for i = 1, #KEYS, 4 do
  local lock, readers = KEYS[i], KEYS[i + 3]
  local value = redis.pcall('GET', lock)
  is_own = is_own or holds(lock, readers, token)
  local is_given = holds(lock, readers, giver)
  if is_given and is_upgrade then
    is_given = value == giver or reads_alone(lock, readers, giver)
  elseif value == MARKER and readers ~= lock then
    is_missing = is_missing or not is_given
  end
  if not value then
    is_missing = true
  elseif not is_given then
    other = type(value) == 'string' and string.sub(value, 1, MAX_TOKEN + 1) or ''
    expires_in = pttl[lock]
  end
end
if is_own then return {2, 0} end
if is_missing then return {0, -2, now, ''} end
if other then return {0, expires_in, now, other} end
for i = 1, #KEYS, 4 do
  local error = first_error({keep_value(KEYS[i])}) or cannot_change(KEYS[i], KEYS[i + 3])
  if error then return error end
end
for i = 1, #KEYS, 4 do
  local lock, readers = KEYS[i], KEYS[i + 3]
  if is_upgrade then
    -- If the upgrade fails, its lease relies on what it was promised before, or meanwhile: of all of its
    -- resources, also of those that it has exclusively.
    local kept = math.max(pttl[lock], tonumber(ttl))
    if readers ~= lock then redis.call('ZREMRANGEBYSCORE', readers, '-inf', '+inf') end
    redis.call('SET', lock, token, 'PX', string.format('%.0f', kept))
  elseif readers == lock then
    redis.call('SET', lock, token, 'PX', ttl)
  elseif redis.call('GET', lock) == giver then
    -- The DOWNGRADE has not arrived yet.
    begin_reading(lock, readers, token, tonumber(ttl))
  else
    join_readers(lock, readers, token, tonumber(ttl))
    stop_reading(lock, readers, giver)
  end
  redis.call('SET', KEYS[i + 1], string.format('%.0f', fence), 'PX', memory)
end
return {1, fence, now}
