package js

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
	"unsafe"

	"stepwell/engine"
)

var errClosed = errors.New("the evaluator is closed")

// Options configure a Pool. Zero values mean the defaults.
type Options struct {
	// Executable is started as child; default /proc/self/exe, this binary.
	Executable string
	// Size is the number of children of each memory class; default the number of
	// processors, at most 4. They start when they are needed.
	Size int
	// Memory and TransformMemory are the limits of the two classes, in bytes. A
	// call whose engine.Limits ask for more than Memory runs in the second.
	Memory, TransformMemory int64
	// MaxSource is the longest source, in bytes.
	MaxSource int
	Log       *slog.Logger
	// OnRestart is called after a child was ended, with the reason in a word or
	// two: time, memory, stack, worn, killed from outside, protocol, cancelled.
	OnRestart func(reason string)
}

// Pool runs expressions in child processes. It is an engine.Evaluator and safe
// for concurrent use.
type Pool struct {
	options Options
	starter *starter
	small   *class // templates, selectors, conditions, and all analysis
	large   *class // transforms
	calls   sync.WaitGroup

	mu       sync.Mutex
	analyses map[[sha256.Size]byte]*known
}

var _ engine.Evaluator = (*Pool)(nil)

// known is what is known of a source with its parameters.
type known struct {
	err        *engine.ExpressionError
	reach      []*paths
	signatures []string // of reach
}

// NewPool makes a pool. Its children start when they are needed.
func NewPool(o Options) (*Pool, error) {
	if o.Executable == "" {
		o.Executable = "/proc/self/exe"
	}
	if o.Size == 0 {
		o.Size = min(4, runtime.NumCPU())
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if o.TransformMemory == 0 {
		o.TransformMemory = DefaultTransformMemory
	}
	if o.MaxSource == 0 {
		o.MaxSource = DefaultMaxSource
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Size < 0 || o.Memory < 64<<20 || o.TransformMemory < 64<<20 || o.MaxSource < 0 {
		return nil, fmt.Errorf("evaluator: a size or limit is too small: %d children, %d and %d bytes", o.Size, o.Memory, o.TransformMemory)
	}
	return &Pool{
		options:  o,
		starter:  newStarter(o.Executable),
		small:    newClass(o.Memory, o.Size),
		large:    newClass(o.TransformMemory, o.Size),
		analyses: make(map[[sha256.Size]byte]*known),
	}, nil
}

// Close turns further calls away, waits for those at work and ends all children.
// It must be called once.
func (p *Pool) Close() {
	p.small.close()
	p.large.close()
	p.calls.Wait()
	p.starter.close()
}

// Check parses expressions without running them; nil for each that parses.
func (p *Pool) Check(ctx context.Context, exprs []engine.Expression) ([]*engine.ExpressionError, error) {
	all, err := p.analyze(ctx, exprs)
	if err != nil {
		return nil, err
	}
	errs := make([]*engine.ExpressionError, len(exprs))
	for i, k := range all {
		errs[i] = k.err
	}
	return errs, nil
}

// Reads reports which expressions can read a top-level key of their sourceData. One that
// does not parse, or is over a limit, counts as one that can.
func (p *Pool) Reads(ctx context.Context, exprs []engine.Expression, key string) ([]bool, error) {
	all, err := p.analyze(ctx, exprs)
	if err != nil {
		return nil, err
	}
	reads := make([]bool, len(exprs))
	for i, k := range all {
		reads[i] = k.err != nil
		for at, reach := range k.reach {
			if exprs[i].Params[at] == "sourceData" && (reach.whole || reach.keys[key] != nil) {
				reads[i] = true
			}
		}
	}
	return reads, nil
}

// Evaluate runs expressions, each with a fresh copy of the data that it can
// reach. When one meets a limit, those after it are not run.
func (p *Pool) Evaluate(ctx context.Context, req engine.EvalRequest) ([]engine.EvalResult, error) {
	results := make([]engine.EvalResult, len(req.Expressions))
	analyses, err := p.analyze(ctx, req.Expressions)
	if err != nil {
		return nil, err
	}
	class, timeout := p.small, req.Limits.Timeout
	if req.Limits.Memory > p.small.memory {
		class = p.large
	}
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	b := newBuilder(req.Args, class.memory)
	var todo []int
	for i, e := range req.Expressions {
		if analyses[i].err != nil {
			results[i].Err = analyses[i].err
			continue
		}
		err := b.add(ctx, e, analyses[i])
		if errors.Is(err, errTooLarge) {
			results[i].Err = limitError(memoryMessage(class.memory))
			continue
		}
		if err != nil {
			return nil, err
		}
		todo = append(todo, i)
	}
	if len(todo) == 0 {
		return results, nil
	}
	key := req.Tenant
	if key == "" {
		key = sourceKey(req.Expressions[todo[0]])
	}
	call := call{class: class, key: key, timeout: timeout, n: len(todo)}
	done, failed, err := p.do(ctx, call, b.frame(), func(i int, answer *reading) (worn bool) {
		results[todo[i]], worn = decodeResult(answer)
		return worn
	})
	if err != nil {
		return nil, err
	}
	for n, i := range todo[done:] {
		if results[i] = (engine.EvalResult{Err: failed}); n > 0 {
			results[i].Err = limitError("was not run, because an expression before it met a limit")
		}
	}
	return results, nil
}

func sourceKey(e engine.Expression) string { return strings.Join(e.Params, ",") + "\n" + e.Source }

// analyze gives what is known of each expression, and asks a child for the rest.
func (p *Pool) analyze(ctx context.Context, exprs []engine.Expression) ([]*known, error) {
	all := make([]*known, len(exprs))
	keys := make([][sha256.Size]byte, len(exprs))
	var todo []int
	for i, e := range exprs {
		if len(e.Source) > p.options.MaxSource {
			all[i] = &known{err: limitError(sourceMessage(p.options.MaxSource))}
			continue
		}
		keys[i] = sha256.Sum256([]byte(sourceKey(e)))
		p.mu.Lock()
		all[i] = p.analyses[keys[i]]
		p.mu.Unlock()
		if all[i] == nil {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		m := newMessage(opAnalyze)
		m.number(len(todo))
		for _, i := range todo {
			m.text(exprs[i].Source)
			m.texts(exprs[i].Params)
		}
		call := call{class: p.small, key: sourceKey(exprs[todo[0]]), timeout: DefaultTimeout, n: len(todo)}
		done, failed, err := p.do(ctx, call, m.frame(), func(n int, answer *reading) bool {
			i := todo[n]
			all[i] = decodeAnalysis(answer, len(exprs[i].Params))
			if answer.err == nil {
				p.remember(keys[i], all[i])
			}
			return false
		})
		if err != nil {
			return nil, err
		}
		if failed != nil {
			// The next one killed a child; those after it get another.
			all[todo[done]] = &known{err: failed}
			done++
		}
		todo = todo[done:]
	}
	return all, nil
}

// remember keeps an analysis, within a bound.
func (p *Pool) remember(key [sha256.Size]byte, k *known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.analyses) >= cachedAnswer {
		clear(p.analyses)
	}
	p.analyses[key] = k
}

func decodeAnalysis(r *reading, params int) *known {
	r.byte()
	if r.bool() {
		return &known{err: &engine.ExpressionError{Message: strings.Clone(r.text()), Limit: r.bool()}}
	}
	k := &known{}
	for range params {
		reach := &paths{whole: r.bool()}
		for range r.count() {
			path := r.texts()
			for i := range path {
				path[i] = strings.Clone(path[i])
			}
			reach.add(path)
		}
		k.reach = append(k.reach, reach)
		k.signatures = append(k.signatures, reach.signature())
	}
	return k
}

// call is one round trip to a child.
type call struct {
	class   *class
	key     string // who waits in one line
	timeout time.Duration
	n       int // answers that are expected
}

// do makes a round trip. It gives back how many answers came; failed is the
// limit that the next expression met. A child that somebody else killed is
// replaced once, and asked all over again: expressions have no effects.
func (p *Pool) do(ctx context.Context, c call, frame []byte, got func(i int, answer *reading) (worn bool)) (done int, failed *engine.ExpressionError, err error) {
	p.calls.Add(1)
	defer p.calls.Done()
	s, err := c.class.take(ctx, c.key)
	if err != nil {
		return 0, nil, err
	}
	defer c.class.give(s)
	for attempt := 1; ; attempt++ {
		if s.process != nil && !s.process.alive() {
			s.process.wait()
			s.process = nil
		}
		if s.process == nil {
			if s.process, err = p.starter.start(c.class.memory); err != nil {
				return 0, nil, err
			}
		}
		child, worn := s.process, false
		done, err = child.exchange(ctx, frame, c.n, c.timeout, func(i int, answer *reading) error {
			worn = got(i, answer) || worn
			return answer.err
		})
		if err == nil {
			if worn {
				child.kill()
				p.ended(s, "worn")
			}
			return done, nil, nil
		}
		if ctx.Err() != nil {
			child.kill()
			p.ended(s, "cancelled")
			return 0, nil, ctx.Err()
		}
		cause := child.bury(err)
		p.ended(s, cause.String())
		switch {
		case cause == deathTime:
			return done, limitError(timeMessage(c.timeout)), nil
		case cause == deathStack:
			return done, limitError(depthMessage), nil
		case cause == deathProtocol:
			return 0, nil, fmt.Errorf("evaluator: %w", err)
		case cause == deathOutside && attempt == 1:
			continue
		}
		return done, limitError(memoryMessage(c.class.memory)), nil
	}
}

// ended notes that a slot's child is gone.
func (p *Pool) ended(s *slot, reason string) {
	s.process = nil
	p.options.Log.Info("evaluator child ended", "reason", reason)
	if p.options.OnRestart != nil {
		p.options.OnRestart(reason)
	}
}

// builder makes a request. Data that several expressions reach in the same way
// is sent once.
type builder struct {
	args  map[string]engine.Scope
	index map[string]int // parameter and signature to number of the document, from 1
	docs  []string
	exprs message
	n     int
	size  int // bytes of data read so far
	limit int
}

// errTooLarge is data of which a child could not hold its values.
var errTooLarge = errors.New("the data is larger than an evaluator can hold")

func newBuilder(args map[string]engine.Scope, memory int64) *builder {
	return &builder{args: args, index: make(map[string]int), limit: int(min(maxFrame-maxFrame/8, memory/2))}
}

func (b *builder) add(ctx context.Context, e engine.Expression, k *known) error {
	numbers := make([]int, len(e.Params))
	for i, name := range e.Params {
		reach, signature := k.reach[i], k.signatures[i]
		if e.State && i == 0 && !reach.whole && (reach.keys[stateKey] == nil || !reach.keys[stateKey].whole) {
			reach, signature = withState(reach), signature+"+"
		}
		number, err := b.document(ctx, name, reach, signature)
		if err != nil {
			return err
		}
		numbers[i] = number
	}
	b.n++
	b.exprs.text(e.Source)
	b.exprs.number(len(e.Params))
	for i, name := range e.Params {
		b.exprs.text(name)
		b.exprs.number(numbers[i])
	}
	b.exprs.bool(e.State)
	return nil
}

// withState gives paths that hold the persisted state too.
func withState(p *paths) *paths {
	more := &paths{}
	list, _ := p.list()
	for _, path := range append(list, []string{stateKey}) {
		more.add(path)
	}
	return more
}

// document gives the number of the document with the reached parts of a scope, 0
// when there is no such scope.
func (b *builder) document(ctx context.Context, name string, reach *paths, signature string) (int, error) {
	scope := b.args[name]
	if scope == nil {
		return 0, nil
	}
	id := name + "\x00" + signature
	if n := b.index[id]; n > 0 {
		return n, nil
	}
	keys := reach.sorted()
	if reach.whole {
		keys = scope.Keys()
		sort.Strings(keys)
	}
	doc := []byte{'{'}
	for _, key := range keys {
		value, ok, err := scope.Get(ctx, key)
		if err != nil {
			return 0, fmt.Errorf("reading %s.%s: %w", name, key, err)
		}
		if !ok {
			continue
		}
		if len(doc) > 1 {
			doc = append(doc, ',')
		}
		doc = appendQuoted(doc, key)
		doc = append(doc, ':')
		next := reach
		if !reach.whole {
			next = reach.keys[key]
		}
		before := len(doc)
		doc = next.prune(doc, value)
		if b.size += len(doc) - before; b.size > b.limit {
			return 0, errTooLarge
		}
	}
	doc = append(doc, '}')
	b.docs = append(b.docs, unsafe.String(unsafe.SliceData(doc), len(doc))) // nobody changes it from here on
	b.index[id] = len(b.docs)
	return len(b.docs), nil
}

func (b *builder) frame() []byte {
	m := newMessage(opEvaluate)
	m.texts(b.docs)
	m.number(b.n)
	m.b = append(m.b, b.exprs.b...)
	return m.frame()
}
