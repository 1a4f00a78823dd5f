-- GIVE BACK: undoes TRANSFER. Makes the giver hold every resource that the token holds, until the time to adopt the
-- lease ends. If this time is over, deletes the keys and shares of the token instead. Returns 1 if the token held all
-- resources; else 0.
--
-- KEYS: for each resource the lock key and the readers; for a permit the index instead of the readers (see
-- readers.lua).
-- ARGV: the token, the token of the giver, the moment at which the time to adopt the lease ends (by the nodes' clocks,
-- in microseconds), the full length of the time to adopt (milliseconds), '1' to undo an upgrade, else '0', and for
-- permits the common beginning of all lock keys.

--- pttl.lua
--- clock.lua
--- readers.lua
--- tries.lua
--- index.lua
local token, giver, is_upgrade, base = ARGV[1], ARGV[2], ARGV[5] == '1', ARGV[6]
local rest, done = math.min(math.ceil((ARGV[3] - now) / 1000), tonumber(ARGV[4])), 1
for i = 1, #KEYS, EACH do
  local lock, readers = KEYS[i], base and KEYS[i] or KEYS[i + 1]
  local error = holds(lock, readers, token) and cannot_change(lock, readers)
  if error then return error end
end
for i = 1, #KEYS, EACH do
  local lock, readers = KEYS[i], base and KEYS[i] or KEYS[i + 1]
  local is_reader = not is_upgrade and share(lock, readers, token) ~= nil
  if not is_reader and redis.pcall('GET', lock) ~= token then
    done = 0
  elseif is_reader then
    if rest > 0 then join_readers(lock, readers, giver, rest, share(lock, readers, giver)) end
    stop_reading(lock, readers, token)
  elseif rest <= 0 then
    expire_in(lock, 0)
    if base then update_index(KEYS[i + 1], base, lock, 0) end
  else
    -- The lease that was to be upgraded may still be valid, so its key must not expire earlier than before.
    local ttl = is_upgrade and math.max(rest, pttl[lock]) or rest
    if is_upgrade and readers ~= lock then
      begin_reading(lock, readers, giver, ttl)
    else
      redis.call('SET', lock, giver, 'PX', string.format('%.0f', ttl))
    end
    if base then update_index(KEYS[i + 1], base, lock, ttl) end
  end
end
return done
