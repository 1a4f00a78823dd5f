-- EXTEND with at least one resource in shared mode. Returns the same as ../extend.lua. Never makes a token a
-- reader again after its share has expired.
--
-- KEYS: for each resource of each lease the lock key, the fence key, and the readers (see readers.lua).
-- ARGV: as in ../extend.lua.

--- pttl.lua
--- clock.lua
--- readers.lua
local held, is_exclusive, is_kept, at = {}, {}, {}, 1
for i = 1, #ARGV, 4 do
  local token, last = ARGV[i + 1], at + EACH * ARGV[i] - 1
  held[i] = 1
  for k = at, last, EACH do
    local lock, readers = KEYS[k], KEYS[k + 2]
    local value = redis.pcall('GET', lock)
    if value ~= token then
      if not share(lock, readers, token, value) then held[i] = 0 end
    else
      is_exclusive[k] = true
      if readers ~= lock and held[i] == 1 then
        --- tries.lua
        -- If the set of readers cannot be written, the key is not downgraded: it stays exclusive, and only its expiry
        -- is extended.
        is_kept[k] = cannot_change(lock, readers) ~= nil
        local error = is_kept[k] and first_error({keep_expiry(lock)})
        if error then return error end
      end
    end
  end
  at = last + 1
end

local done = {}
at = 1
for i = 1, #ARGV, 4 do
  local token, ttl, memory = ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local last = at + EACH * ARGV[i] - 1
  for k = at, last, EACH do
    local lock, counter, readers = KEYS[k], KEYS[k + 1], KEYS[k + 2]
    if held[i] == 1 then
      if not is_exclusive[k] then
        local error = join_readers(lock, readers, token, ttl)
        if error then
          -- If ZADD is refused at all, it is refused for the first share. So no share has changed, and only
          -- the expiries must be restored.
          for key, left in pairs(before) do
            if left >= 0 then expire_in(key, math.max(left, 1)) end
          end
          return error
        end
      elseif readers ~= lock and not is_kept[k] then
        -- The DOWNGRADE of this lease has not arrived yet, so the token still holds the key exclusively.
        begin_reading(lock, readers, token, lasting(lock, ttl))
      elseif pttl[lock] < ttl then
        expire_in(lock, ttl)
      end
      pttl[counter] = redis.call('PTTL', counter)
      if pttl[counter] >= 0 and pttl[counter] < memory then expire_in(counter, memory) end
    end
  end
  done[#done + 1] = held[i]
  at = last + 1
end
return done
