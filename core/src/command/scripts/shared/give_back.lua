-- GIVE BACK with at least one resource in shared mode. Returns the same as give_back.lua.
--
-- KEYS: for each resource the lock key and the readers (see readers.lua).
-- ARGV: as in give_back.lua, and '1' to undo an upgrade, else '0'.

--- pttl.lua
--- readers.lua
local token, giver, is_upgrade = ARGV[1], ARGV[2], ARGV[5] == '1'
local rest, done = math.min(math.ceil((ARGV[3] - now) / 1000), tonumber(ARGV[4])), 1
for i = 1, #KEYS, 2 do
  local error = holds(KEYS[i], KEYS[i + 1], token) and cannot_change(KEYS[i], KEYS[i + 1])
  if error then return error end
end
for i = 1, #KEYS, 2 do
  local lock, readers = KEYS[i], KEYS[i + 1]
  local is_reader = not is_upgrade and share(lock, readers, token) ~= nil
  if not is_reader and redis.pcall('GET', lock) ~= token then
    done = 0
  elseif is_reader then
    if rest > 0 then join_readers(lock, readers, giver, rest) end
    stop_reading(lock, readers, token)
  elseif rest <= 0 then
    expire_in(lock, 0)
  else
    -- The lease may still be valid after an upgrade of it.
    local ttl = is_upgrade and math.max(rest, pttl[lock]) or rest
    if is_upgrade and readers ~= lock then
      begin_reading(lock, readers, giver, ttl)
    else
      redis.call('SET', lock, giver, 'PX', string.format('%.0f', ttl))
    end
  end
end
return done
