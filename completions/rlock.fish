# fish completion for rlock.
# Generated from tests/generated/completion.fish and from the command line.

set -g __rlock_values --at-least --conflict-exit-code --id --io-timeout --kill-after --label --min-replicas --older-than --on-lost --on-unreachable --owner --password-file --prefix --reason --slots --sort --timeout --tls-ca --tls-cert --tls-key --ttl --url --wait --while-pid -E -k -t -w
set -g __rlock_optional --watch -W
set -g __rlock_server --password-file --prefix --tls-ca --tls-cert --tls-key --url

# What may come at the cursor: options, and NAME, COMMAND or nothing.
# For COMMAND, also the number of words before the command.
function __rlock_expects -a subcommand
    set -l words (commandline -opc)
    test "$words[2]" = "$subcommand"
    or return
    set -l expected NAME
    set -l options options
    set -l skip ''
    set -l index 2
    for word in $words[3..-1]
        set index (math $index + 1)
        switch "$skip$options$word"
            case 'value*'
                set skip ''
                continue
            case 'optional*'
                set skip ''
                # Unlike a name, a duration begins with a digit.
                string match -qr '^[0-9]' -- $word
                and continue
        end
        if test -n "$options"; and string match -q -- -- $word
            set options ''
        else if test -n "$options"; and string match -q -- '-?*' $word
            # Of several short options together, only the last can take the next word.
            set word (string replace -r -- '^-[a-zA-Z]+([a-zA-Z])$' '-$1' $word)
            contains -- $word $__rlock_values
            and set skip value
            contains -- $word $__rlock_optional
            and set skip optional
        else if test "$expected" = COMMAND
            echo COMMAND
            echo (math $index - 1)
            return
        else if test $subcommand = exec
            set expected COMMAND
        else
            set expected ''
        end
    end
    string join \n -- $options $expected
    test "$expected" = COMMAND
    and count $words
end

# The names of held locks, from the server that the words before name.
function __rlock_names
    set -l server
    set -l take ''
    for word in (commandline -opc)
        if test -n "$take" || contains -- (string replace -r '=.*' '' -- $word) $__rlock_server
            set -a server $word
            contains -- $word $__rlock_server
            and set take yes
            or set take ''
        end
    end
    timeout 1 rlock inspect --quiet --names --io-timeout 500ms $server 2>/dev/null </dev/null
end

# Completes the command as if rlock were not before it.
function __rlock_command
    set -l before (__rlock_expects exec)[-1]
    set -l words (commandline -opc)
    set -l command (string escape -- $words[(math $before + 1)..-1]) (commandline -ct)
    complete "-C$command"
end

complete -c rlock -f
complete -c rlock -n 'test (count (commandline -opc)) = 1' -a exec -d 'Run a command while holding a lock'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -a acquire -d 'Acquire a lock and print the token to renew or release it'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -a renew -d 'Renew the lease of a held lock'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -a release -d 'Release a held lock'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -a inspect -d 'Show the holders and waiters of locks, or check the servers'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'test (count (commandline -opc)) = 1' -s V -l version -d 'Print version'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l url -x -d 'Use this lock server; repeat for a quorum'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l prefix -x -d 'Prepend PREFIX to NAME to form the Redis key'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l io-timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for each connection or reply'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l password-file -r -F -d 'Read the password from the first line of FILE'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l tls-ca -r -F -d 'Trust only the certificate authority in FILE'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l tls-cert -r -F -d 'Present the client certificate in FILE to the server'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l tls-key -r -F -d 'Read the private key for --tls-cert from FILE'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s q -l quiet -d 'Print failures only'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s t -l ttl -x -a '10s 30s 1m 5m 1h' -d 'Let the lease expire DURATION after its last renewal'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s x -l exclusive -d 'Hold the lock alone (default)'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s s -l shared -d 'Share the lock with other --shared holders'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l slots -x -d 'Allow up to N holders at once; all must pass the same N'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s n -l nonblock -d 'Fail immediately if the lock is busy'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s w -l wait -l timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for the lock'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l next -d 'Wait ahead of all waiters that do not use --next'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l supersede -d 'Cancel older waiters that also use --supersede'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s E -l conflict-exit-code -x -d 'Exit with status N if the lock is busy'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l at-least -x -a '10s 30s 1m 5m 1h' -d 'Keep the lock for at least DURATION after acquiring it'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l reentrant -d 'Enter a lock that an enclosing exec or the same owner holds'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l owner -x -d 'Enter locks as OWNER, for --reentrant'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l min-replicas -x -d 'Require N replicas to confirm each grant or renewal'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l label -x -d 'Show TEXT to waiters and in inspect'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s k -l kill-after -x -a '10s 30s 1m 5m 1h' -d 'Allow DURATION between SIGTERM and SIGKILL on a loss'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l on-lost -x -a "kill continue" -d 'Kill the command or let it continue if the lock is lost'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l on-unreachable -x -a "fail run" -d 'Fail or run unlocked if no server is reachable at the start'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l foreground -d 'Keep the command in the process group of rlock'
complete -c rlock -n 'contains options (__rlock_expects exec)' -l die-with-parent -d 'Behave as on SIGTERM when the parent process of rlock ends'
complete -c rlock -n 'contains options (__rlock_expects exec)' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'contains NAME (__rlock_expects exec)' -a '(__rlock_names)'
complete -c rlock -n 'contains COMMAND (__rlock_expects exec)' -a '(__rlock_command)'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l url -x -d 'Use this lock server; repeat for a quorum'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l prefix -x -d 'Prepend PREFIX to NAME to form the Redis key'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l io-timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for each connection or reply'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l password-file -r -F -d 'Read the password from the first line of FILE'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l tls-ca -r -F -d 'Trust only the certificate authority in FILE'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l tls-cert -r -F -d 'Present the client certificate in FILE to the server'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l tls-key -r -F -d 'Read the private key for --tls-cert from FILE'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s q -l quiet -d 'Print failures only'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s t -l ttl -x -a '10s 30s 1m 5m 1h' -d 'Let the lease expire DURATION after its last renewal'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s x -l exclusive -d 'Hold the lock alone (default)'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s s -l shared -d 'Share the lock with other --shared holders'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l slots -x -d 'Allow up to N holders at once; all must pass the same N'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s n -l nonblock -d 'Fail immediately if the lock is busy'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s w -l wait -l timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for the lock'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l next -d 'Wait ahead of all waiters that do not use --next'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l supersede -d 'Cancel older waiters that also use --supersede'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s E -l conflict-exit-code -x -d 'Exit with status N if the lock is busy'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l at-least -x -a '10s 30s 1m 5m 1h' -d 'Keep the lock for at least DURATION after acquiring it'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l reentrant -d 'Enter a lock that an enclosing exec or the same owner holds'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l owner -x -d 'Enter locks as OWNER, for --reentrant'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l min-replicas -x -d 'Require N replicas to confirm each grant or renewal'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l label -x -d 'Show TEXT to waiters and in inspect'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l shell -d 'Print shell assignments for eval instead of the token'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -l while-pid -x -d 'Hold the lock while process PID lives'
complete -c rlock -n 'contains options (__rlock_expects acquire)' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'contains NAME (__rlock_expects acquire)' -a '(__rlock_names)'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l url -x -d 'Use this lock server; repeat for a quorum'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l prefix -x -d 'Prepend PREFIX to NAME to form the Redis key'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l io-timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for each connection or reply'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l password-file -r -F -d 'Read the password from the first line of FILE'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l tls-ca -r -F -d 'Trust only the certificate authority in FILE'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l tls-cert -r -F -d 'Present the client certificate in FILE to the server'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l tls-key -r -F -d 'Read the private key for --tls-cert from FILE'
complete -c rlock -n 'contains options (__rlock_expects renew)' -s q -l quiet -d 'Print failures only'
complete -c rlock -n 'contains options (__rlock_expects renew)' -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n 'contains options (__rlock_expects renew)' -s t -l ttl -x -a '10s 30s 1m 5m 1h' -d 'Let the lease expire DURATION from now'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l min-replicas -x -d 'Require N replicas to confirm the renewal'
complete -c rlock -n 'contains options (__rlock_expects renew)' -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n 'contains options (__rlock_expects renew)' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'contains NAME (__rlock_expects renew)' -a '(__rlock_names)'
complete -c rlock -n 'contains options (__rlock_expects release)' -l url -x -d 'Use this lock server; repeat for a quorum'
complete -c rlock -n 'contains options (__rlock_expects release)' -l prefix -x -d 'Prepend PREFIX to NAME to form the Redis key'
complete -c rlock -n 'contains options (__rlock_expects release)' -l io-timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for each connection or reply'
complete -c rlock -n 'contains options (__rlock_expects release)' -l password-file -r -F -d 'Read the password from the first line of FILE'
complete -c rlock -n 'contains options (__rlock_expects release)' -l tls-ca -r -F -d 'Trust only the certificate authority in FILE'
complete -c rlock -n 'contains options (__rlock_expects release)' -l tls-cert -r -F -d 'Present the client certificate in FILE to the server'
complete -c rlock -n 'contains options (__rlock_expects release)' -l tls-key -r -F -d 'Read the private key for --tls-cert from FILE'
complete -c rlock -n 'contains options (__rlock_expects release)' -s q -l quiet -d 'Print failures only'
complete -c rlock -n 'contains options (__rlock_expects release)' -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n 'contains options (__rlock_expects release)' -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n 'contains options (__rlock_expects release)' -l force -d 'Revoke all holds, stop their commands and await release'
complete -c rlock -n 'contains options (__rlock_expects release)' -l now -d 'Free the lock immediately; requires --force'
complete -c rlock -n 'contains options (__rlock_expects release)' -l id -x -d 'Revoke only the hold or remove the waiter with this ID'
complete -c rlock -n 'contains options (__rlock_expects release)' -l reason -x -d 'Show TEXT to affected clients and in the history'
complete -c rlock -n 'contains options (__rlock_expects release)' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'contains NAME (__rlock_expects release)' -a '(__rlock_names)'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l url -x -d 'Use this lock server; repeat for a quorum'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l prefix -x -d 'Prepend PREFIX to NAME to form the Redis key'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l io-timeout -x -a '10s 30s 1m 5m 1h' -d 'Wait at most DURATION for each connection or reply'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l password-file -r -F -d 'Read the password from the first line of FILE'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l tls-ca -r -F -d 'Trust only the certificate authority in FILE'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l tls-cert -r -F -d 'Present the client certificate in FILE to the server'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l tls-key -r -F -d 'Read the private key for --tls-cert from FILE'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s q -l quiet -d 'Print failures only'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s v -l verbose -d 'Print each step with its time'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s a -l all -d 'Also list locks that are free and still remembered'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l attention -d 'List only locks that need attention; exit 1 if there are any'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l older-than -x -a '10s 30s 1m 5m 1h' -d 'List only locks that have been held for longer than DURATION'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l sort -x -a "age\t'Longest held first' name\t'Alphabetical' waiting\t'Most waiters first' lease\t'First lease to expire first'" -d 'Sort the list by ORDER'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l json -d 'Print one JSON document, even on failure'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l names -d 'Print only the names, one per line'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s W -l watch -a '10s 30s 1m 5m 1h' -d 'Refresh every DURATION, by default every second'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l servers -d 'Check servers for risks to locks; exit 1 if any are found'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s t -l ttl -x -a '10s 30s 1m 5m 1h' -d 'With --servers: the --ttl of your jobs'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -l min-replicas -x -d 'With --servers: the --min-replicas of your jobs'
complete -c rlock -n 'contains options (__rlock_expects inspect)' -s h -l help -d 'Print help (see more with '\''--help'\'')'
complete -c rlock -n 'contains NAME (__rlock_expects inspect)' -a '(__rlock_names)'
