package main

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// labelLength bounds what is shown of a statement.
const labelLength = 72

// postgresProtocol notes round trips on a Postgres connection: from the first message
// after the server was ready to when it is ready again.
type postgresProtocol struct {
	from       string
	note       func(event)
	started    bool // the startup packet, which has no type, has passed
	up, down   splitter
	statements map[string]string // prepared, by name
	busy       bool
	current    event
	labels     []string
	wrote      bool // a command changed rows, or a transaction committed
}

func newPostgresProtocol(from string, note func(event)) *postgresProtocol {
	p := &postgresProtocol{from: from, note: note, statements: map[string]string{}}
	size := func(h []byte) int { return int(binary.BigEndian.Uint32(h[1:5])) - 4 }
	p.up = splitter{header: 5, size: size, keep: 2048, whole: p.clientSaid}
	p.down = splitter{header: 5, size: size, keep: 64, whole: p.serverSaid}
	return p
}

func (p *postgresProtocol) request(at time.Time, b []byte) {
	if !p.started { // the client waits for an answer before it says more
		p.started = true
		return
	}
	if !p.busy {
		p.busy, p.wrote, p.labels = true, false, p.labels[:0]
		p.current = event{from: p.from, kind: "postgres", start: at}
	}
	p.up.write(b)
}

func (p *postgresProtocol) answer(at time.Time, b []byte) {
	p.current.end = at
	p.down.write(b)
}

func (p *postgresProtocol) clientSaid(header, payload []byte) {
	switch header[0] {
	case 'Q':
		p.say(cString(payload))
	case 'P':
		name := cString(payload)
		if len(name)+1 <= len(payload) {
			p.statements[name] = cString(payload[len(name)+1:])
		}
		p.say("prepare: " + p.statements[name])
	case 'B':
		portal := cString(payload)
		if len(portal)+1 <= len(payload) {
			p.say(p.statements[cString(payload[len(portal)+1:])])
		}
	}
}

// say adds the beginning of a statement, with white space shown as one space.
func (p *postgresProtocol) say(sql string) {
	sql = strings.Join(strings.Fields(sql[:min(len(sql), 2*labelLength)]), " ")
	if len(sql) > labelLength {
		sql = sql[:labelLength] + "…"
	}
	p.labels = append(p.labels, sql)
}

// serverSaid reads tags of commands ("INSERT 0 1", "COMMIT") and when the server is ready.
func (p *postgresProtocol) serverSaid(header, payload []byte) {
	switch header[0] {
	case 'C':
		tag := cString(payload)
		verb, _, _ := strings.Cut(tag, " ")
		switch verb {
		case "COMMIT":
			p.wrote = true
		case "INSERT", "UPDATE", "DELETE":
			p.wrote = p.wrote || !strings.HasSuffix(tag, " 0")
		}
	case 'Z':
		if !p.busy {
			return
		}
		p.busy = false
		p.current.label = strings.Join(p.labels, "; ")
		p.current.commit = p.wrote && len(payload) > 0 && payload[0] == 'I'
		if p.current.label != "" { // a login has none
			p.note(p.current)
		}
	}
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// grpcProtocol notes calls on a connection of HTTP/2: from their headers to their
// trailers. Long polls are no work and are left out.
type grpcProtocol struct {
	from     string
	note     func(event)
	preface  int // bytes of the client's preface that are still to come
	up, down splitter
	headers  *hpack.Decoder
	fragment []byte
	now      time.Time
	calls    map[uint32]event
}

func newGRPCProtocol(from string, note func(event)) *grpcProtocol {
	p := &grpcProtocol{from: from, note: note, preface: len(http2.ClientPreface), calls: map[uint32]event{}}
	p.headers = hpack.NewDecoder(4096, nil)
	p.headers.SetAllowedMaxDynamicTableSize(1 << 20)
	size := func(h []byte) int { return int(h[0])<<16 | int(h[1])<<8 | int(h[2]) }
	p.up = splitter{header: 9, size: size, keep: 64 << 10, whole: p.clientSaid}
	p.down = splitter{header: 9, size: size, keep: 64, whole: p.serverSaid}
	return p
}

func (p *grpcProtocol) request(at time.Time, b []byte) {
	n := min(p.preface, len(b))
	p.preface -= n
	p.now = at
	p.up.write(b[n:])
}

func (p *grpcProtocol) answer(at time.Time, b []byte) {
	p.now = at
	p.down.write(b)
}

// clientSaid reads the client's headers: all of them, since each may change the table by
// which later ones are shortened.
func (p *grpcProtocol) clientSaid(header, payload []byte) {
	kind, flags := http2.FrameType(header[3]), http2.Flags(header[4])
	stream := binary.BigEndian.Uint32(header[5:9]) & (1<<31 - 1)
	switch kind {
	case http2.FrameHeaders:
		if flags.Has(http2.FlagHeadersPadded) && len(payload) > 0 {
			payload = payload[1:max(1, len(payload)-int(payload[0]))]
		}
		if flags.Has(http2.FlagHeadersPriority) && len(payload) >= 5 {
			payload = payload[5:]
		}
		p.fragment = append(p.fragment[:0], payload...)
	case http2.FrameContinuation:
		p.fragment = append(p.fragment, payload...)
	default:
		return
	}
	if !flags.Has(http2.FlagHeadersEndHeaders) { // the same bit in both kinds
		return
	}
	fields, err := p.headers.DecodeFull(p.fragment)
	if err != nil {
		return
	}
	for _, f := range fields {
		if f.Name == ":path" {
			method := f.Value[strings.LastIndexByte(f.Value, '/')+1:]
			p.calls[stream] = event{from: p.from, kind: "temporal", label: method, start: p.now}
		}
	}
}

// serverSaid waits for the end of a call's stream.
func (p *grpcProtocol) serverSaid(header, _ []byte) {
	kind, flags := http2.FrameType(header[3]), http2.Flags(header[4])
	ends := kind == http2.FrameRSTStream || flags.Has(http2.FlagHeadersEndStream) && (kind == http2.FrameHeaders || kind == http2.FrameData)
	if !ends {
		return
	}
	stream := binary.BigEndian.Uint32(header[5:9]) & (1<<31 - 1)
	call, ok := p.calls[stream]
	delete(p.calls, stream)
	if ok && !strings.HasPrefix(call.label, "Poll") {
		call.end = p.now
		p.note(call)
	}
}

// httpProtocol notes requests of HTTP/1.1 without pipelining: from a request's first
// bytes to its answer's.
type httpProtocol struct {
	from    string
	note    func(event)
	waiting bool
	current event
}

func (p *httpProtocol) request(at time.Time, b []byte) {
	if p.waiting {
		return // more of the same request
	}
	line, _, _ := bytes.Cut(b, []byte("\r\n"))
	path, _, _ := strings.Cut(strings.TrimSuffix(string(line), " HTTP/1.1"), "?")
	p.waiting, p.current = true, event{from: p.from, kind: "upstream", label: path, start: at}
}

// answer notes the exchange at the answer's first bytes: those of the tools that are
// profiled come in one piece.
func (p *httpProtocol) answer(at time.Time, _ []byte) {
	if !p.waiting {
		return
	}
	p.waiting = false
	p.current.end = at
	p.note(p.current)
}
