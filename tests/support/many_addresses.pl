# many_addresses.pl RESOLV_CONF SOCKET COMMAND...
#
# Runs a command where each host name has 40 addresses. They do not fit into a datagram, so the DNS
# server sends them over TCP. Behind the last one is a proxy to the server on the Unix socket.
# Needs new namespaces for the network and for mounts.
use strict;
use warnings;
use Socket;

my ($configuration, $server) = splice @ARGV, 0, 2;

sub bound {
    my ($host, $port, $type) = @_;
    socket my $socket, PF_INET, $type, 0 or die "socket: $!";
    bind $socket, sockaddr_in($port, inet_aton($host)) or die "bind: $!";
    $type == SOCK_DGRAM || listen $socket, 9 or die "listen: $!";
    return $socket;
}

sub answer {
    my ($query, $fits) = @_;
    my $question = substr $query, 12, index($query, "\0", 12) + 5 - 12;
    my $count = unpack('n', substr $question, -4, 2) == 1 ? 40 : 0;
    my $is_cut = $count && !$fits;
    my @found = map { pack 'n3 N n C4', 0xc00c, 1, 1, 0, 4, 127, 0, 1, $_ } $is_cut ? () : 1 .. $count;
    my $flags = $is_cut ? 0x8380 : 0x8180;
    return join '', substr($query, 0, 2), pack('n5', $flags, 1, scalar @found, 0, 0), $question, @found;
}

sub in_background {
    my ($act) = @_;
    defined(my $child = fork) or die "fork: $!";
    $child or $act->(), exit;
}

# The loopback interface is down at first.
my $up = pack 'a16 s', 'lo', 1;
socket my $control, PF_INET, SOCK_DGRAM, 0 or die "socket: $!";
ioctl $control, 0x8914, $up or die "ioctl: $!";
my ($udp, $tcp) = map { bound('127.0.0.1', 53, $_) } SOCK_DGRAM, SOCK_STREAM;
my $last = bound('127.0.1.40', 6379, SOCK_STREAM);
system('mount', '--bind', $configuration, '/etc/resolv.conf') and die 'mount';

in_background(sub {
    while (my $from = recv $udp, my $query, 999, 0) {
        send $udp, answer($query, 0), 0, $from;
    }
});
in_background(sub {
    while (accept my $client, $tcp) {
        while (sysread $client, my $length, 2) {
            sysread $client, my $query, unpack 'n', $length;
            my $answer = answer($query, 1);
            syswrite $client, pack('n', length $answer) . $answer;
        }
    }
});
in_background(sub {
    while (accept my $client, $last) {
        socket my $socket, PF_UNIX, SOCK_STREAM, 0 or die "socket: $!";
        connect $socket, sockaddr_un($server) or die "connect: $!";
        for ([$client, $socket], [$socket, $client]) {
            my ($from, $to) = @$_;
            in_background(sub { my $bytes; syswrite $to, $bytes while sysread $from, $bytes, 9999 });
        }
    }
});
exit(system(@ARGV) >> 8);
