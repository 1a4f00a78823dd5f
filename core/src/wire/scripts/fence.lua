local token, ttl, memory = ARGV[1], ARGV[2], ARGV[4]
--- clock.lua

-- If a proposal is far from the node's own clock, the node uses the clock's time instead. Otherwise, a fence could be
-- smaller than a fence that the node has forgotten.
local proposal = tonumber(ARGV[3])
local is_near = proposal - now <= FENCE_WINDOW and now - proposal <= FENCE_WINDOW
local fence, is_queued = is_near and proposal or now, false

-- The fence keys are checked before the first write, so an error means that nothing was changed.
for i = 1, #KEYS, EACH do
  local last = redis.pcall('GET', KEYS[i + 1])
  if last then
    local number = tonumber(last)
    if not number then
      return type(last) == 'table' and last
        or redis.error_reply('ERR the fence key ' .. KEYS[i + 1] .. ' holds a foreign value')
    end
    if number >= fence then fence = number + 1 end
  end
  is_queued = redis.pcall('EXISTS', KEYS[i + 2]) == 1 or is_queued
end
if fence >= FENCE_LIMIT then
  return redis.error_reply('ERR the fence key ' .. KEYS[2] .. ' is used up')
end

-- The fence counter must not expire before the clock has passed the counter's value: otherwise, the next
-- fence would be smaller.
if fence - now > FENCE_WINDOW then memory = memory + math.ceil((fence - now) / 1000) end

-- What ACQUIRE returns if it locks the resources.
local reply = is_near and fence == proposal and now or {1, fence, now}
