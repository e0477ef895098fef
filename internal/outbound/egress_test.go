package outbound

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEgressModes(t *testing.T) {
	t.Parallel()
	// P: allowed in private mode, p: also in public mode, -: never.
	for address, want := range map[string]string{
		"93.184.216.34": "p", "1.1.1.1": "p", "2606:4700::1111": "p", "::ffff:1.1.1.1": "p", "64:ff9b::1.1.1.1": "p",
		"10.0.0.1": "P", "172.16.5.4": "P", "192.168.1.1": "P", "127.0.0.1": "P", "127.9.9.9": "P", "100.64.0.1": "P",
		"198.18.0.1": "P", "::1": "P", "fd12::1": "P", "::ffff:10.0.0.1": "P", "64:ff9b::10.0.0.1": "P",
		"0.0.0.0": "-", "0.1.2.3": "-", "169.254.169.254": "-", "169.254.0.1": "-", "224.0.0.1": "-", "239.1.1.1": "-",
		"255.255.255.255": "-", "250.1.1.1": "-", "100.100.100.200": "-", "192.0.0.192": "-", "168.63.129.16": "-",
		"::": "-", "fe80::1": "-", "fe80::1%eth0": "-", "fec0::1": "-", "ff02::1": "-", "fd00:ec2::254": "-", "fd00:ec2::23": "-", "fd20:ce::254": "-",
		"::ffff:169.254.169.254": "-", "::ffff:0.0.0.0": "-", "64:ff9b::169.254.169.254": "-", "64:ff9b:1::a9fe:a9fe": "-", "::169.254.169.254": "-",
		"2002:a9fe:a9fe::1": "-", "2002:0a00:0001::1": "-", "2001:0:1:2:3:4:5601:5601": "-", "2001:db8::1": "-", "192.0.2.1": "-", "::ffff:100.100.100.200": "-",
	} {
		for _, mode := range []string{ModePrivate, ModePublic} {
			e, err := newEgress(mode, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			allowed := e.check(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(address), 80), false) == nil
			if allowed != (want == "p" || want == "P" && mode == ModePrivate) {
				t.Errorf("%s, mode %s: allowed %v", address, mode, allowed)
			}
		}
		// Whatever is listed: what is always refused stays so.
		e, err := newEgress(ModeAllowlist, []string{"0.0.0.0/0", "::/0"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		allowed := e.check(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(address), 80), true) == nil
		if reserved := address == "2001:db8::1" || address == "192.0.2.1" || address == "2002:0a00:0001::1"; allowed != (want != "-" || reserved) {
			t.Errorf("%s, all listed: allowed %v", address, allowed)
		}
	}
}

func TestAllowlist(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for allow, allowed := range map[string][]string{
		"LocalHost":               {"localhost"},
		"localhost:" + port:       {"localhost"},
		"localhost:1":             {},
		"127.0.0.1":               {"127.0.0.1", "localhost"},
		"127.0.0.1:" + port:       {"127.0.0.1"},
		"127.0.0.0/30":            {"127.0.0.1", "localhost"},
		"127.0.0.2/32":            {},
		"::ffff:127.0.0.1":        {"127.0.0.1", "localhost"},
		"example.com, 10.0.0.0/8": {},
	} {
		c := newClient(t, Config{Mode: ModeAllowlist, Allow: strings.Split(allow, ",")})
		for _, host := range []string{"localhost", "LOCALHOST", "127.0.0.1"} {
			resp, err := c.Do(t.Context(), Request{URL: "http://" + host + ":" + port})
			var e *Error
			if want := slices.Contains(allowed, strings.ToLower(host)); (err == nil) != want {
				t.Errorf("allow %s: %s: %v", allow, host, err)
			} else if err != nil && (!errors.As(err, &e) || e.Reason != Refused || e.Sent) {
				t.Errorf("allow %s: %s: %v", allow, host, err)
			} else if err == nil {
				resp.Close()
			}
		}
	}
}

func TestOwnAddressesAreRefused(t *testing.T) {
	t.Parallel()
	address, connections := rawServer(t, answering("HTTP/1.1 200 OK\r\n\r\n"))
	_, port, _ := net.SplitHostPort(address)
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	hosts := []string{"127.0.0.1", "localhost", "127.0.0.9", "[::1]", "[::ffff:127.0.0.1]"}
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
				hosts = append(hosts, n.IP.String())
			}
		}
	}
	for _, own := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port, "127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port, "/run/postgresql:" + port} {
		c := newClient(t, Config{Refuse: []string{"db.example:5432", own}})
		for _, host := range hosts {
			e := doFails(t, c, Request{URL: "http://" + host + ":" + port, Timeout: 5 * time.Second}, Refused)
			if e.Sent || !strings.Contains(e.Error(), "this service itself") {
				t.Errorf("own %s, host %s: sent %v, %v", own, host, e.Sent, e)
			}
		}
		do(t, c, Request{URL: other.URL})
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections arrived", n)
	}
	// Another machine's port is not ours.
	e, err := newEgress(ModePrivate, nil, []string{":8080", "10.1.1.1:5432", "nowhere.invalid:7233"})
	if err != nil {
		t.Fatal(err)
	}
	for target, allowed := range map[string]bool{
		"10.9.9.9:8080": true, "10.1.1.1:5432": false, "10.1.1.2:5432": true, "[64:ff9b::10.1.1.1]:5432": false,
		"10.9.9.9:7233": false, // the name does not resolve: better none than ours
	} {
		if got := e.check(t.Context(), netip.MustParseAddrPort(target), false) == nil; got != allowed {
			t.Errorf("%s: allowed %v", target, got)
		}
	}
}

func TestOddHostsAreChecked(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{Mode: ModePublic})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "[::ffff:0:127.0.0.1]"} {
		_, err := c.Do(t.Context(), Request{URL: "http://" + host + ":9/", Timeout: 5 * time.Second})
		var e *Error
		if !errors.As(err, &e) || e.Reason != Refused && e.Reason != Unresolved || e.Sent {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{})
	if c.kept.Proxy != nil || c.fresh.Proxy != nil {
		t.Error("a proxy would be asked")
	}
}
