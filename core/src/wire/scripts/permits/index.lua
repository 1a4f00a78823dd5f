-- The index of a semaphore: see permits.lua.

-- Returns the score of a slot whose lock expires in `ttl` milliseconds.
local function free_from(ttl) return string.format('%.0f', (math.floor(now / 1000) + ttl) * 1000) end

-- Sets the score of a slot whose lock expires in `ttl` milliseconds; if `ttl` is 0, the slot is free. `base` is the
-- common beginning of all lock keys. Returns whether the index could be changed. If not, the key of the index may hold
-- a value of another type. A caller must not make such a key expire.
local function update_index(index, base, lock, ttl)
  local till = ttl > 0 and free_from(ttl) or '0'
  return type(redis.pcall('ZADD', index, 'XX', till, string.sub(lock, #base + 1))) == 'number'
end

-- Keeps the index for about `memory` milliseconds. Never shortens the ttl of the index: other leases may
-- hold their slots for longer.
local function keep_index(index, memory)
  local left = redis.pcall('PTTL', index)
  if type(left) == 'number' and left < memory - INDEX_SLACK then redis.pcall('PEXPIRE', index, memory) end
end
