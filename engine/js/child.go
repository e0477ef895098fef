package js

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stepwell/engine"
)

// childName is the first argument of a child and its title in process lists.
const childName = "evaluator"

// ChildRequested reports whether the arguments of this process (os.Args) are
// those of an evaluator child. The binary must then call Main before anything
// else: before flags, configuration and logs.
func ChildRequested(args []string) bool { return len(args) == 2 && args[0] == childName }

// Main is the evaluator child. It serves requests on stdin and stdout until
// stdin ends, and does not return. It limits itself first: memory (its one
// argument, in bytes), open files, no core dumps.
func Main() {
	memory, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err == nil {
		err = confine(memory)
	}
	if err == nil {
		err = serve(os.Stdin, os.Stdout, memory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evaluator:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// confine sets the limits of this process. The data limit comes on top of what
// the runtime has mapped at the start, which differs between builds.
func confine(memory int64) error {
	debug.SetTraceback("none")
	runtime.GOMAXPROCS(2) // one for the code, one for its garbage
	debug.SetMemoryLimit(memory - memory/8)
	debug.SetGCPercent(400)
	debug.SetMaxStack(int(memory / stackShare))
	time.Local = time.UTC
	// When the machine runs out of memory, children go first: they are replaced.
	// Where this file cannot be written, the kernel chooses.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	mapped, err := mappedData()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		{syscall.RLIMIT_DATA, uint64(mapped + memory)},
		{syscall.RLIMIT_NOFILE, 16},
		{syscall.RLIMIT_CORE, 0},
	} {
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("limit %d: %w", l.resource, err)
		}
	}
	return nil
}

// mappedData is what counts against RLIMIT_DATA so far, in bytes.
func mappedData() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmData:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmData in the status of this process")
}

// server answers requests, one after another.
type server struct {
	out      *bufio.Writer
	memory   int64
	programs map[string]*compiled
	held     int // bytes of source in programs
}

// compiled is what is kept of a source.
type compiled struct {
	program *program
	err     *engine.ExpressionError
}

// maxHeld bounds the sources whose programs a child keeps, in bytes.
const maxHeld = 8 << 20

func serve(in io.Reader, out io.Writer, memory int64) error {
	from := bufio.NewReaderSize(in, 64<<10)
	s := &server{out: bufio.NewWriterSize(out, 64<<10), memory: memory, programs: make(map[string]*compiled)}
	if err := s.send(&message{b: make([]byte, 4)}); err != nil { // an empty frame: ready
		return err
	}
	for {
		request, err := readFrame(from, maxFrame)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch op := request.byte(); op {
		case opAnalyze:
			err = s.analyze(request)
		case opEvaluate:
			err = s.evaluate(request)
		default:
			err = errWire
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) send(m *message) error {
	if _, err := s.out.Write(m.frame()); err != nil {
		return err
	}
	return s.out.Flush()
}

// load compiles a source, or finds it.
func (s *server) load(source string, params []string) *compiled {
	key := strings.Join(params, ",") + "\n" + source
	if c, ok := s.programs[key]; ok {
		return c
	}
	// What is kept must not hold the memory of the request that brought it.
	source = strings.Clone(source)
	for i := range params {
		params[i] = strings.Clone(params[i])
	}
	c := &compiled{}
	c.program, c.err = compile(source, params)
	if s.held += len(key); s.held > maxHeld {
		clear(s.programs)
		s.held = len(key)
	}
	s.programs[strings.Clone(key)] = c
	return c
}

// analyze answers with what each source can read, or what is wrong with it.
func (s *server) analyze(request *reading) error {
	for range request.count() {
		source, params := request.text(), request.texts()
		if request.err != nil {
			return request.err
		}
		c := s.load(source, params)
		answer := newMessage(opAnalyze)
		answer.bool(c.err != nil)
		if c.err != nil {
			answer.text(c.err.Message)
			answer.bool(c.err.Limit)
		} else {
			for _, reach := range c.program.reach {
				list, some := reach.list()
				answer.bool(!some)
				answer.number(len(list))
				for _, path := range list {
					answer.texts(path)
				}
			}
		}
		if err := s.send(answer); err != nil {
			return err
		}
	}
	return request.err
}

// evaluate answers with the outcome of each expression.
func (s *server) evaluate(request *reading) error {
	docs := request.texts()
	for range request.count() {
		source := request.text()
		var args arguments
		for range request.count() {
			args.names = append(args.names, request.text())
			doc := ""
			if i := request.number(); i > len(docs) {
				return errWire
			} else if i > 0 {
				doc = docs[i-1]
			}
			args.docs = append(args.docs, doc)
		}
		args.state = request.bool()
		if request.err != nil {
			return request.err
		}
		started := time.Now()
		result := engine.EvalResult{}
		if c := s.load(source, args.names); c.err != nil {
			result.Err = c.err
		} else {
			result = evaluate(c.program, args)
		}
		worn := time.Since(started) > 2*time.Millisecond && s.worn()
		if err := s.send(encodeResult(result, worn)); err != nil {
			return err
		}
	}
	return request.err
}

// worn reports whether this process has grown so much that a new one is better.
func (s *server) worn() bool {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()-sample[1].Value.Uint64()) > s.memory/wornShare
}

func encodeResult(r engine.EvalResult, worn bool) *message {
	m := newMessage(opEvaluate)
	m.b = slices.Grow(m.b, len(r.Value)+len(r.State)+64) // a large result must not be copied twice
	m.bool(worn)
	m.texts(r.Console)
	m.texts(r.Warnings)
	switch {
	case r.Err != nil:
		m.number(kindError)
		m.text(r.Err.Message)
		m.bool(r.Err.Limit)
	case r.Undefined:
		m.number(kindUndefined)
	default:
		m.number(kindValue)
		m.bytes(r.Value)
	}
	m.bytes(r.State)
	return m
}

func decodeResult(r *reading) (result engine.EvalResult, worn bool) {
	r.byte()
	worn = r.bool()
	result.Console, result.Warnings = r.texts(), r.texts()
	switch r.number() {
	case kindError:
		result.Err = &engine.ExpressionError{Message: r.text(), Limit: r.bool()}
	case kindUndefined:
		result.Undefined = true
	case kindValue:
		result.Value = []byte(r.text())
	default:
		r.fail()
	}
	if state := r.text(); state != "" {
		result.State = []byte(state)
	}
	return result, worn
}
