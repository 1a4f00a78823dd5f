-- The score in the index of a slot whose lock lasts so long from now, in milliseconds (see permits.lua).
local function free_from(ttl) return string.format('%.0f', (math.floor(now / 1000) + ttl) * 1000) end
