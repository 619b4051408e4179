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

