package outbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Egress modes: which addresses requests may reach, beside those that are
// always refused.
const (
	ModePrivate   = "private"   // public and private networks, and loopback
	ModePublic    = "public"    // public addresses only
	ModeAllowlist = "allowlist" // what Config.Allow lists
)

// connectTimeout bounds one attempt to open a TCP connection, whatever the
// request's timeout: a host that drops packets is a network error.
const connectTimeout = 15 * time.Second

// privateV4 and privateV6 are the special purpose networks that ModePrivate
// opens: RFC 1918, loopback, shared address space (RFC 6598, used by overlay
// networks), benchmarking (RFC 2544, used by local tunnels), unique local.
var (
	privateV4 = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15")
	privateV6 = prefixes("::1/128", "fc00::/7")
)

// alwaysRefused are addresses that no mode opens: unspecified ("this host"),
// link-local, multicast, reserved and broadcast, and the metadata services of
// cloud providers that are outside of the link-local networks.
var alwaysRefused = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
	"::/128", "fe80::/10", "fec0::/10", "ff00::/8",
	"100.100.100.200/32", // Alibaba Cloud
	"192.0.0.192/32",     // Oracle Cloud
	"168.63.129.16/32",   // Azure
	"fd00:ec2::/32",      // AWS: metadata, container and pod credentials
	"fd20:ce::254/128",   // Google Cloud
)

// refusal is the error of an address that may not be reached. It names no more
// than the public message may show.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// egress decides which addresses may be reached, and dials them.
type egress struct {
	mode  string
	guard *ssrf.Guardian
	hosts map[string]bool // allowlist: lower-case host or host:port
	nets  []netip.Prefix  // allowlist
	own   []ownAddress
}

// newEgress checks mode, allow and refuse (Config says their forms).
func newEgress(mode string, allow, refuse []string) (*egress, error) {
	e := &egress{mode: mode, hosts: map[string]bool{}}
	switch mode {
	case "":
		e.mode = ModePrivate
		fallthrough
	case ModePrivate:
		e.guard = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(privateV4...), ssrf.WithAllowedV6Prefixes(privateV6...))
	case ModePublic:
		e.guard = ssrf.New(ssrf.WithAnyPort())
	case ModeAllowlist:
		if len(allow) == 0 {
			return nil, fmt.Errorf("egress mode %q needs a list of what is allowed", mode)
		}
	default:
		return nil, fmt.Errorf("egress mode %q is unknown: use %s, %s or %s", mode, ModePrivate, ModePublic, ModeAllowlist)
	}
	for _, entry := range allow {
		if err := e.allow(entry); err != nil {
			return nil, err
		}
	}
	for _, entry := range refuse {
		own, err := parseOwnAddress(entry)
		if err != nil {
			return nil, err
		}
		e.own = append(e.own, own)
	}
	return e, nil
}

// allow adds one entry of the allow list.
func (e *egress) allow(entry string) error {
	entry = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(entry)), ".")
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		e.nets = append(e.nets, prefix.Masked())
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		addr = addr.Unmap()
		e.nets = append(e.nets, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	if entry == "" || strings.ContainsAny(entry, "/*@ ") {
		return fmt.Errorf("egress allow list: %q is neither a host, host:port, address nor CIDR", entry)
	}
	e.hosts[entry] = true
	return nil
}

// dial opens a connection to host:port, if every rule allows the address that
// the name resolves to now. It is the DialContext of the transports.
func (e *egress) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	listed := e.hosts[host] || e.hosts[net.JoinHostPort(host, port)]
	d := net.Dialer{
		Timeout: connectTimeout,
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return &refusal{"its address is not a known form"}
			}
			return e.check(ctx, ap, listed)
		},
	}
	conn, err := d.DialContext(ctx, network, hostport)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn}, nil
}

// watchedConn remembers that its connection ended. net/http reports half a head
// as a malformed one; with this a cut answer is told from a wrong one.
type watchedConn struct {
	net.Conn
	ended atomic.Bool
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended.Store(true)
	}
	return n, err
}

// watched gives the connection that dial made, below TLS if there is any.
func watched(conn net.Conn) *watchedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	w, _ := conn.(*watchedConn)
	return w
}

// check decides about one resolved address; listed says that the allow list
// names the host. It returns a *refusal or nil.
func (e *egress) check(ctx context.Context, ap netip.AddrPort, listed bool) error {
	addr := ap.Addr().Unmap().WithZone("") // a prefix never contains a zoned address
	inner := carriedV4(addr)
	for _, a := range []netip.Addr{addr, inner} {
		if !a.IsValid() {
			continue
		}
		if contains(alwaysRefused, a) {
			return &refusal{"link-local, metadata, multicast and unspecified addresses are never allowed"}
		}
		for _, own := range e.own {
			if own.is(ctx, netip.AddrPortFrom(a, ap.Port())) {
				return &refusal{"it is an address of this service itself"}
			}
		}
	}
	if ssrf.IPv6NAT64Prefix.Contains(addr) {
		addr = inner // the gateway's target is what counts
	}
	if e.mode == ModeAllowlist {
		if listed || contains(e.nets, addr) {
			return nil
		}
		return &refusal{"the host is not on the list of allowed hosts"}
	}
	if e.guard.SafeAddr(addr) != nil {
		return &refusal{fmt.Sprintf("the address is not reachable in egress mode %q", e.mode)}
	}
	return nil
}

// carriedV4 is the IPv4 address inside an IPv6 address of a transition form
// (NAT64 of RFC 6052 and RFC 8215, 6to4, IPv4-compatible, Teredo); else invalid.
func carriedV4(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case ssrf.IPv6NAT64Prefix.Contains(a), contains(nat64Local, a), contains(v4Compatible, a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case contains(sixToFour, a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	case contains(teredo, a):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	}
	return netip.Addr{}
}

var (
	nat64Local   = prefixes("64:ff9b:1::/48")
	v4Compatible = prefixes("::/96")
	sixToFour    = prefixes("2002::/16")
	teredo       = prefixes("2001::/32")
)

// ownAddress is one address on which a part of this service listens.
type ownAddress struct {
	name string     // when it is a name, resolved at each check
	ip   netip.Addr // else; invalid or unspecified means every address of this machine
	port uint16
}

func parseOwnAddress(hostport string) (ownAddress, error) {
	host, portText, err := net.SplitHostPort(hostport)
	if err != nil {
		return ownAddress{}, fmt.Errorf("refused address %q: want host:port", hostport)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return ownAddress{}, fmt.Errorf("refused address %q: the port must be a number from 1 to 65535", hostport)
	}
	own := ownAddress{port: uint16(port)}
	if host == "" || strings.HasPrefix(host, "/") { // a Unix socket's server mostly has the port too
		return own, nil
	}
	if own.ip, err = netip.ParseAddr(host); err != nil {
		own.ip, own.name = netip.Addr{}, host
	}
	own.ip = own.ip.Unmap().WithZone("")
	return own, nil
}

// is reports whether ap reaches the address. A name that does not resolve now
// counts as reached: refusing is the safe mistake.
func (o ownAddress) is(ctx context.Context, ap netip.AddrPort) bool {
	if ap.Port() != o.port {
		return false
	}
	if o.name == "" {
		return o.reached(o.ip, ap.Addr())
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", o.name)
	if err != nil {
		return true
	}
	for _, ip := range ips {
		if o.reached(ip.Unmap().WithZone(""), ap.Addr()) {
			return true
		}
	}
	return false
}

// reached compares one own address with a target on the same port. A listener
// on any address of this machine is taken to listen on all of them.
func (o ownAddress) reached(own, target netip.Addr) bool {
	if own == target {
		return true
	}
	return onThisMachine(target) && (!own.IsValid() || own.IsUnspecified() || onThisMachine(own))
}

// onThisMachine reports whether an address is loopback or of an interface here.
func onThisMachine(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // refusing is the safe mistake
	}
	for _, ia := range addrs {
		if n, ok := ia.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a {
				return true
			}
		}
	}
	return false
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
