-- The details of a hold or a waiter.
--
-- Reads:   state, fields
-- Changes: in the state 'details:<TOKEN>'; own
--
-- One field of the state contains all details of a token, one per line, because each field costs
-- time. A missing detail is ''. Times are in milliseconds.
--   mode        'exclusive', 'shared' or 'slots:N'
--   owner       lets a request enter a lock again; see owners.lua, and closing.lua
--   ttl         the length of the lease
--   attempt     the number of the last request
--   fence       of a hold
--   acquired    when the hold was granted
--   renewed     when its holder last asked for it; '' if it was granted to a waiter that has not
--               claimed it yet
--   since       when its client first asked for it; '' for that of a closed lock
--   alive       when a waiter stops being presumed alive
--   keep_until  until when a hold is kept even if it is released sooner
--   status      ''; 'cooling' if it was released before `keep_until`; else see revocation.lua
--   reentrant   '1' if a waiter may enter a lock that its owner holds
--   origin      'agreed' or 'proposed': the ticket of a waiter on one of several servers
--   slot        the number of a hold; see slots.lua
--   about       the client, shown to others: a record, so it comes last

local DETAILS = { 'mode', 'owner', 'ttl', 'attempt', 'fence', 'acquired', 'renewed', 'since',
  'alive', 'keep_until', 'status', 'reentrant', 'origin', 'slot', 'about' }
local ONE_PER_LINE = '^' .. string.rep('([^\n]*)\n', #DETAILS - 1) .. '(.*)$'

-- All details are '' if the text is '' or not in this form.
local function decoded(text)
  local details, values = {}, { string.match(text, ONE_PER_LINE) }
  for i, name in ipairs(DETAILS) do details[name] = values[i] or '' end
  return details
end

-- The details of the calling token.
local own = decoded(fields[11] or '')

-- The details of any token. Those of the calling token are always the same table. It calls HMGET, not
-- HGET, so that inspect needs permission for only one of these commands.
local function details_of(token)
  if token == TOKEN then return own end
  return decoded(redis.call('HMGET', STATE, 'details:' .. token)[1] or '')
end

-- The value of the field with these details.
local function encoded(details)
  local values = {}
  for i, name in ipairs(DETAILS) do values[i] = details[name] end
  return table.concat(values, '\n')
end

local function write_details(token, details)
  redis.call('HSET', STATE, 'details:' .. token, encoded(details))
end

-- Deletes the details of a token, and the fields of the state given as `...`.
local function delete_details(token, ...)
  redis.call('HDEL', STATE, 'details:' .. token, ...)
  if token == TOKEN then own = decoded('') end
end

-- The first 8 characters of a token: enough to tell holds apart, but not to release one.
local function id_of(token) return string.sub(token, 1, 8) end

-- What others see of a hold as of a waiter: a record with its client.
local function described(token, details)
  return '\nid ' .. id_of(token) .. '\nmode ' .. details.mode .. '\nfence '
    .. details.fence .. '\nacquired ' .. details.acquired .. '\nsince ' .. details.since
    .. string.sub(details.about, 1, MAX_DETAIL)
end
