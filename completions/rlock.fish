# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_rlock_global_optspecs
    string join \n h/help V/version
end

function __fish_rlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_rlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_rlock_using_subcommand
    set -l cmd (__fish_rlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c rlock -n "__fish_rlock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_needs_command" -s V -l version -d 'Print version'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "exec" -d 'Run a command while holding a lock'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "acquire" -d 'Acquire a lock and print the token to renew or release it'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "renew" -d 'Renew a held lock for --ttl from now'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "release" -d 'Release a held lock'
complete -c rlock -n "__fish_rlock_needs_command" -f -a "inspect" -d 'Show the holders and waiters of locks'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l url -d 'Use this lock server; repeat for a quorum [env: RLOCK_URL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l prefix -d 'Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l io-timeout -d 'Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l password-file -d 'Read the password from the first line of FILE' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-ca -d 'Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-cert -d 'Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l tls-key -d 'Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s t -l ttl -d 'Expire the lease DURATION after its last renewal [env: RLOCK_TTL] [default: 30s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l slots -d 'Allow up to N holders at once; all must pass the same N' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s w -l wait -l timeout -d 'Wait at most DURATION for the lock [env: RLOCK_WAIT]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s E -l conflict-exit-code -d 'Exit with status N if the lock is busy' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l at-least -d 'Keep the lock for at least DURATION after acquiring it' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l owner -d 'Hold the lock as owner ID, for --reentrant [env: RLOCK_OWNER]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l min-replicas -d 'Require N replicas to confirm each grant or renewal [env: RLOCK_MIN_REPLICAS]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l label -d 'Show TEXT to waiters and in inspect [env: RLOCK_LABEL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s k -l kill-after -d 'Send SIGKILL DURATION after SIGTERM if the lock is lost [default: 5s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l on-lost -d 'Kill the command or let it continue if the lock is lost' -r -f -a "kill\t''
continue\t''"
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l on-unreachable -d 'Fail or run unlocked if no server is reachable at the start' -r -f -a "fail\t''
run\t''"
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s q -l quiet -d 'Print failures only, not waiting or busy messages'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s x -l exclusive -d 'Hold the lock alone (default)'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s s -l shared -d 'Share the lock with other --shared holders'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s n -l nonblock -d 'Fail immediately if the lock is busy'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l next -d 'Wait ahead of all waiters that do not use --next'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l supersede -d 'Cancel older waiters that also use --supersede'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l reentrant -d 'Enter a lock that an enclosing exec or the same owner holds'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -l foreground -d 'Keep the command in the process group of rlock'
complete -c rlock -n "__fish_rlock_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l url -d 'Use this lock server; repeat for a quorum [env: RLOCK_URL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l prefix -d 'Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l io-timeout -d 'Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l password-file -d 'Read the password from the first line of FILE' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-ca -d 'Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-cert -d 'Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l tls-key -d 'Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s t -l ttl -d 'Expire the lease DURATION after its last renewal [env: RLOCK_TTL] [default: 30s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l slots -d 'Allow up to N holders at once; all must pass the same N' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s w -l wait -l timeout -d 'Wait at most DURATION for the lock [env: RLOCK_WAIT]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s E -l conflict-exit-code -d 'Exit with status N if the lock is busy' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l at-least -d 'Keep the lock for at least DURATION after acquiring it' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l owner -d 'Hold the lock as owner ID, for --reentrant [env: RLOCK_OWNER]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l min-replicas -d 'Require N replicas to confirm each grant or renewal [env: RLOCK_MIN_REPLICAS]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l label -d 'Show TEXT to waiters and in inspect [env: RLOCK_LABEL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l while-pid -d 'Hold the lock while process PID lives' -r
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s q -l quiet -d 'Print failures only, not waiting or busy messages'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s x -l exclusive -d 'Hold the lock alone (default)'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s s -l shared -d 'Share the lock with other --shared holders'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s n -l nonblock -d 'Fail immediately if the lock is busy'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l next -d 'Wait ahead of all waiters that do not use --next'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l supersede -d 'Cancel older waiters that also use --supersede'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l reentrant -d 'Enter a lock that an enclosing exec or the same owner holds'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -l shell -d 'Print shell assignments for eval instead of the token'
complete -c rlock -n "__fish_rlock_using_subcommand acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l url -d 'Use this lock server; repeat for a quorum [env: RLOCK_URL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l prefix -d 'Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l io-timeout -d 'Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l password-file -d 'Read the password from the first line of FILE' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-ca -d 'Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-cert -d 'Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l tls-key -d 'Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s t -l ttl -d 'Expire the lease DURATION from now [env: RLOCK_TTL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s q -l quiet -d 'Print failures only, not waiting or busy messages'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n "__fish_rlock_using_subcommand renew" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l url -d 'Use this lock server; repeat for a quorum [env: RLOCK_URL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l prefix -d 'Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l io-timeout -d 'Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l password-file -d 'Read the password from the first line of FILE' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-ca -d 'Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-cert -d 'Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l tls-key -d 'Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand release" -l id -d 'Revoke only the hold with this ID, or remove that waiter' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -l reason -d 'Show TEXT to affected clients and in the history' -r
complete -c rlock -n "__fish_rlock_using_subcommand release" -s q -l quiet -d 'Print failures only, not waiting or busy messages'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l force -d 'Revoke all holds, stop their commands and await release'
complete -c rlock -n "__fish_rlock_using_subcommand release" -l now -d 'Free the lock immediately; requires --force'
complete -c rlock -n "__fish_rlock_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l url -d 'Use this lock server; repeat for a quorum [env: RLOCK_URL]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l prefix -d 'Prepend PREFIX to NAME to form the Redis key [env: RLOCK_PREFIX] [default: rlock:]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l io-timeout -d 'Wait at most DURATION for each connection or reply [env: RLOCK_IO_TIMEOUT] [default: 2s]' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l password-file -d 'Read the password from the first line of FILE' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-ca -d 'Trust only the certificate authority in FILE [env: RLOCK_TLS_CA]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-cert -d 'Present the client certificate in FILE to the server [env: RLOCK_TLS_CERT]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l tls-key -d 'Read the private key for --tls-cert from FILE [env: RLOCK_TLS_KEY]' -r -F
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l older-than -d 'List only locks that have been held for longer than DURATION' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l sort -d 'Sort the list by ORDER' -r -f -a "age\t'Longest held first'
name\t'By name'
waiting\t'Most waiters first'
lease\t'Soonest end of the lease first'"
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s W -l watch -d 'Refresh every DURATION, by default every second' -r
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s q -l quiet -d 'Print failures only, not waiting or busy messages'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l attention -d 'List only locks that need attention; exit 1 if there are any'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -l names -d 'Print only the names, one per line'
complete -c rlock -n "__fish_rlock_using_subcommand inspect" -s h -l help -d 'Print help (see more with \'--help\')'

# The names of held locks, from the server in RLOCK_URL; none if it does not answer soon.
complete -c rlock -n "__fish_rlock_using_subcommand inspect; or __fish_rlock_using_subcommand release; or __fish_rlock_using_subcommand renew" -f -a "(rlock inspect --quiet --names --io-timeout 500ms 2>/dev/null)"
