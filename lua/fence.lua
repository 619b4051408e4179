-- Fencing tokens: strictly increasing, and never behind the clock.
--
-- Reads:   lock.fence, micros
-- Changes: nothing

-- The last fence granted; 0 if there is none, or if it is not a number. It is at most 2^53, because
-- int() cannot write every larger number, and rlock never grants one.
local function last_fence()
  return math.min(tonumber(lock.fence or 0) or 0, 2 ^ 53)
end

-- Whether a fence is more than a day ahead of the clock: it comes from a wrong clock, or is a
-- forgery. Continuing from it would leave the clock no room to catch up.
local function is_ahead(fence) return fence > micros + DAY * 1000 end

-- The fence of a new grant: the wanted one, if it is larger than all earlier ones, else the next
-- one. It follows the clock, so that it grows even if the server loses its data.
local function next_fence(wanted)
  local last = last_fence()
  return int(wanted and wanted > last and wanted or math.max(last + 1, micros))
end
