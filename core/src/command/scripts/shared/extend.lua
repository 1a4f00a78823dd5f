-- EXTEND with at least one resource in shared mode, or a permit. Returns the same as extend.lua. Never makes a
-- reader of a token whose share has expired.
--
-- KEYS: for each resource of each lease the lock key, the fence key, and the readers, or the index of a permit (see
-- readers.lua).
-- ARGV: for each lease what extend.lua has, and the beginning of all lock keys of a semaphore ('' for locks).

--- pttl.lua
--- clock.lua
--- readers.lua
--- index.lua
local held, is_exclusive, is_kept, own, at = {}, {}, {}, {}, 1
for i = 1, #ARGV, 5 do
  local token, base, last = ARGV[i + 1], ARGV[i + 4], at + EACH * ARGV[i] - 1
  held[i] = 1
  for k = at, last, EACH do
    local lock, readers = KEYS[k], base == '' and KEYS[k + 2] or KEYS[k]
    local value = redis.pcall('GET', lock)
    is_exclusive[k] = value == token
    if not is_exclusive[k] then
      own[readers .. token] = share(lock, readers, token, value)
      if not own[readers .. token] then held[i] = 0 end
    end
    if readers ~= lock and held[i] == 1 and is_exclusive[k] then
      -- If the readers cannot be changed, the key stays exclusive, and only its expiry is extended.
      is_kept[k] = cannot_change(lock, readers) ~= nil
      local error = is_kept[k] and first_error({keep_expiry(lock)})
      if error then return error end
    end
  end
  at = last + 1
end

local done = {}
at = 1
for i = 1, #ARGV, 5 do
  local token, ttl, memory, base = ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), ARGV[i + 4]
  local last = at + EACH * ARGV[i] - 1
  for k = at, last, EACH do
    local lock, counter, readers = KEYS[k], KEYS[k + 1], base == '' and KEYS[k + 2] or KEYS[k]
    if held[i] == 1 then
      if readers ~= lock and not is_exclusive[k] then
        local error = join_readers(lock, readers, token, ttl, own[readers .. token])
        own[readers .. token] = math.max(own[readers .. token] or 0, clock + ttl)
        if error then
          -- If ZADD is refused, it was refused for the first share, so no share has changed. Only expiries are restored.
          for key, left in pairs(before) do
            if left >= 0 then expire_in(key, math.max(left, 1)) end
          end
          return error
        end
      elseif readers ~= lock and not is_kept[k] then
        -- The DOWNGRADE has not arrived yet.
        begin_reading(lock, readers, token, lasting(lock, ttl))
        own[readers .. token] = clock + pttl[lock]
      elseif pttl[lock] < ttl then
        expire_in(lock, ttl)
      end
      pttl[counter] = redis.call('PTTL', counter)
      if pttl[counter] >= 0 and pttl[counter] < memory then expire_in(counter, memory) end
      local index = KEYS[k + 2]
      if base ~= '' and update_index(index, base, lock, math.max(pttl[lock], ttl)) then
        keep_index(index, memory)
      end
    end
  end
  done[#done + 1] = held[i]
  at = last + 1
end
return done
