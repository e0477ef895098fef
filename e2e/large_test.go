package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"stepwell/api/v1"
)

// long asks for the long forms of tests: minutes in place of seconds.
var long = flag.Bool("long", false, "run the long forms of tests")

// largest and largestShort are the memory that a server or a worker may come to while it
// makes, stores and hands out a result of 200 MiB or a run of 100,000 pages, or their short
// forms; evaluators apart.
const (
	largest      = 300 << 20
	largestShort = 200 << 20
)

// TestLarge makes large results with a server and a worker in processes of their own,
// reads them as streams, compares every byte, and looks at the memory that it took.
func TestLarge(t *testing.T) {
	t.Parallel()
	pages, answers, many := 40, 2, 3000
	answer, bound := 20<<20, int64(largestShort)
	if *long {
		bound = largest
		pages, many, answer = 200, 100_000, 99<<20
	}
	in := startSplit(t, 1)
	up := startSource(t)
	byPage := func(page int) string {
		return fmt.Sprintf(`"config":{"url":%q,"queryParams":{"size":%d,"pages":"<<pages>>","cursor":"<<cursor>>"},"pagination":{"type":"cursorBased","cursorPath":"next"}}`, up, page)
	}
	byAnswer := fmt.Sprintf(`"config":{"url":%q,"queryParams":{"size":%d,"pages":"<<pages>>","page":"<<page>>","plain":1},"pagination":{"type":"pageBased","stopCondition":"(r, p, s) => p.page >= s.pages"}}`, up, answer)
	loop := fmt.Sprintf(`"dataSelector":"(s) => Array.from({length: s.pages}, (_, i) => i + 1)","concurrency":4,"config":{"url":"%s?plain=1&size=%d&page=<<currentItem>>"}`, up, 1<<20)
	cases := []struct {
		name, step, output string
		pages              int
		sync               bool
		capped             int               // pages at which the run is to fail, to be rerun
		want               func(w io.Writer) // the data of the run and of its step
		failed             string
	}{
		{name: "pages", step: byPage(1 << 20), pages: pages, want: func(w io.Writer) { wantPages(w, 1<<20, pages) }},
		{name: "sync", step: byPage(1 << 20), pages: pages, sync: true, want: func(w io.Writer) { wantPages(w, 1<<20, pages) }},
		{name: "loop", step: loop, pages: pages, want: func(w io.Writer) { wantLoop(w, 1<<20, pages) }},
		{name: "many", step: byPage(2 << 10), pages: many, capped: many * 9 / 10, want: func(w io.Writer) { wantPages(w, 2<<10, many) }},
		{name: "answers", step: byAnswer, pages: answers, want: func(w io.Writer) { wantArray(w, answer, answers) }},
	}
	for _, c := range cases {
		in.save(c.name, fmt.Sprintf(`{"id":%q,"steps":[{"id":"s",%s}]}`, c.name, c.step))
		began := time.Now()
		in.resetPeaks()
		request := v1.RunRequest{RunID: "large-" + c.name, Inputs: fmt.Appendf(nil, `{"pages":%d}`, c.pages)}
		if c.sync {
			want := c.want
			in.compare(in.post(c.name, request), []bool{true}, want)
		} else {
			request.Options = &v1.RunOptions{Async: true, MaxPages: c.capped}
			if _, err := in.client.Run(t.Context(), c.name, request); err != nil {
				t.Fatal(err)
			}
			run := in.ended(pull{id: request.RunID, pages: c.pages}, 15*time.Minute)
			if c.capped > 0 {
				run = in.rerunLarge(run, c.pages)
				request.RunID = run.RunID
			}
			if run.Status != "success" {
				t.Errorf("%s: %s %s", c.name, run.Status, run.Error)
				continue
			}
		}
		made, evaluators := time.Since(began), in.evaluatorPeaks()
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(in.client.ResultsTo(context.Background(), request.RunID, pw)) }()
		bytes := in.compare(pr, []bool{false, true, true}, c.want)
		server, worker := in.peak(in.server), in.peak(in.workers[0])
		t.Logf("%s: made in %.1f s, read in %.1f s: %d MiB twice; peaks: server %d MiB, worker %d MiB, evaluators %v",
			c.name, made.Seconds(), (time.Since(began) - made).Seconds(), bytes>>20, server>>20, worker>>20, evaluators)
		if server > bound || worker > bound {
			t.Errorf("%s: the memory of the server came to %d MiB, of the worker to %d MiB", c.name, server>>20, worker>>20)
		}
	}
}

// rerunLarge takes up a run that reached its cap of pages and waits for the end. The
// answer must not take long, however much there is to be taken over.
func (in *installation) rerunLarge(of *v1.Run, pages int) *v1.Run {
	in.t.Helper()
	if !strings.Contains(of.Error, "truncated") {
		in.t.Fatalf("the capped run ended as %s: %s", of.Status, of.Error)
	}
	began := time.Now()
	run, err := in.client.Rerun(in.t.Context(), of.RunID, v1.RerunRequest{Options: &v1.RerunOptions{RunOptions: v1.RunOptions{MaxPages: pages + 1}}})
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Logf("a rerun of %d pages was accepted after %s", of.Options.MaxPages, time.Since(began))
	if took := time.Since(began); took > 20*time.Second {
		in.t.Errorf("the answer to a rerun took %s", took)
	}
	return in.ended(pull{id: run.RunID, pages: pages}, 5*time.Minute)
}

// save saves a tool.
func (in *installation) save(id, document string) {
	in.t.Helper()
	var tool v1.ToolCreate
	if err := json.Unmarshal([]byte(document), &tool); err != nil {
		in.t.Fatal(err)
	}
	if _, err := in.client.CreateTool(context.Background(), tool); err != nil {
		in.t.Fatalf("save the tool %s: %v", id, err)
	}
}

// post starts a run and gives the body of the answer, as it comes.
func (in *installation) post(tool string, r v1.RunRequest) io.ReadCloser {
	in.t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		in.t.Fatal(err)
	}
	req, err := http.NewRequest("POST", in.base+"/tools/"+tool+"/run", bytes.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		in.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		in.t.Fatalf("%s was answered %d", tool, res.StatusCode)
	}
	return res.Body
}

// compare reads an answer with members "data": those that are true hold the value that is
// wanted, of which it gives the bytes.
func (in *installation) compare(answer io.ReadCloser, members []bool, want func(io.Writer)) (size int64) {
	in.t.Helper()
	defer answer.Close()
	r := bufio.NewReaderSize(answer, 1<<20)
	for n, compared := range members {
		if err := skipPast(r, `,"data":`); err != nil {
			in.t.Errorf("no data number %d: %v", n+1, err)
			return 0
		}
		if !compared {
			continue
		}
		pr, pw := io.Pipe()
		go func() {
			w := bufio.NewWriterSize(pw, 1<<20)
			want(w)
			pw.CloseWithError(w.Flush())
		}()
		var err error
		size, err = same(r, bufio.NewReaderSize(pr, 1<<20))
		pr.Close()
		if err != nil {
			in.t.Errorf("data number %d differs after %d bytes: %v", n+1, size, err)
			return size
		}
	}
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "}\n") {
		in.t.Errorf("the answer ends with %.200q: %v", rest, err)
	}
	return size
}

// skipPast reads up to a text and past it, which must begin with a comma and hold no other.
func skipPast(r *bufio.Reader, text string) error {
	for range 100 {
		if _, err := r.ReadString(text[0]); err != nil {
			return err
		}
		if head, _ := r.Peek(len(text) - 1); string(head) == text[1:] {
			_, err := r.Discard(len(text) - 1)
			return err
		}
	}
	return errors.New("it is not near")
}

// same compares what is read with all that is wanted.
func same(got, want io.Reader) (size int64, err error) {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := want.Read(b)
		if n > 0 {
			if _, err := io.ReadFull(got, a[:n]); err != nil {
				return size, err
			}
			if !bytes.Equal(a[:n], b[:n]) {
				return size, fmt.Errorf("got %.80q, want %.80q", a[:n], b[:n])
			}
			size += int64(n)
		}
		if err == io.EOF {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
}

// TestTooLarge: what takes in a whole result fails over its limit with a clear text, in a
// worker and a server whose memory stays bounded; what was fetched stays readable.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	const size = 10 << 20
	pages, tools := 11, []string{"transform"}
	if *long {
		pages, tools = 20, []string{"transform", "filter"}
	}
	in := startSplit(t, 1)
	up := startSource(t)
	step := fmt.Sprintf(`{"id":"s","config":{"url":%q,"queryParams":{"size":%d,"pages":%d,"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased","cursorPath":"next"}}}`, up, size, pages)
	in.save("transform", fmt.Sprintf(`{"id":"transform","steps":[%s],"outputTransform":"(s) => s.s.data.data.filter((r) => r.n > 1)"}`, step))
	in.save("filter", fmt.Sprintf(`{"id":"filter","steps":[%s],"responseFilters":[{"target":"KEYS","pattern":"secret","action":"REMOVE"}]}`, step))
	for _, tool := range tools {
		run, err := in.client.Run(t.Context(), tool, v1.RunRequest{RunID: "large-" + tool})
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != "failed" || !strings.Contains(run.Error, "The results of step 's' are larger than 100 MiB") {
			t.Errorf("%s: %s %s", tool, run.Status, run.Error)
		}
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(in.client.ResultsTo(context.Background(), run.RunID, pw)) }()
		if tool == "transform" {
			in.compare(pr, []bool{false, true}, func(w io.Writer) { wantPages(w, size, pages) })
		} else if rest, err := io.ReadAll(pr); err != nil || len(rest) > 10_000 || !strings.Contains(string(rest), `"pages":`) {
			t.Errorf("what is too large to be filtered left as %d bytes: %v", len(rest), err)
		}
		server, worker := in.peak(in.server), in.peak(in.workers[0])
		t.Logf("%s: peaks: server %d MiB, worker %d MiB: %s", tool, server>>20, worker>>20, run.Error)
		if server > largest || worker > largest {
			t.Errorf("%s: the memory of the server came to %d MiB, of the worker to %d MiB", tool, server>>20, worker>>20)
		}
	}
}

// startSource serves pages of records: ?size=BYTES&pages=N&cursor=PAGE as objects that
// lead to the next one, ?plain=1&size=BYTES&page=PAGE as arrays.
func startSource(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := func(name string) int {
			n, _ := strconv.Atoi(r.URL.Query().Get(name))
			return n
		}
		w.Header().Set("Content-Type", "application/json")
		out := bufio.NewWriterSize(w, 64<<10)
		defer out.Flush()
		if r.URL.Query().Get("plain") != "" {
			io.WriteString(out, "[")
			writeRecords(out, number("size"), number("page"))
			io.WriteString(out, "]")
			return
		}
		page := max(number("cursor"), 1)
		io.WriteString(out, `{"data":[`)
		writeRecords(out, number("size"), page)
		if page == number("pages") {
			io.WriteString(out, `],"next":null}`)
			return
		}
		fmt.Fprintf(out, `],"next":"%d"}`, page+1)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// writeRecords writes the records of a page, separated by commas, of about so many bytes:
// texts that compress to about half.
func writeRecords(w io.Writer, size, page int) {
	random := rand.NewPCG(1, uint64(page))
	var record []byte
	for i, written := 0, 0; written < size; i++ {
		record = record[:0]
		if i > 0 {
			record = append(record, ',')
		}
		record = fmt.Appendf(record, `{"n":%d,"id":%d,"text":"`, page*1_000_000+i, uint64(1<<63)+uint64(i))
		for range 24 {
			record = fmt.Appendf(record, "%016x", random.Uint64())
		}
		record = append(record, `"}`...)
		written += len(record)
		_, _ = w.Write(record)
	}
}

func wantPages(w io.Writer, size, pages int) {
	io.WriteString(w, `{"data":[`)
	for page := 1; page <= pages; page++ {
		if page > 1 {
			io.WriteString(w, ",")
		}
		writeRecords(w, size, page)
	}
	io.WriteString(w, `],"next":null}`)
}

func wantArray(w io.Writer, size, pages int) {
	for page := 1; page <= pages; page++ {
		io.WriteString(w, map[bool]string{true: "[", false: ","}[page == 1])
		writeRecords(w, size, page)
	}
	io.WriteString(w, "]")
}

func wantLoop(w io.Writer, size, items int) {
	for item := 1; item <= items; item++ {
		fmt.Fprintf(w, `%s{"currentItem":%d,"data":[`, map[bool]string{true: "[", false: ","}[item == 1], item)
		writeRecords(w, size, item)
		io.WriteString(w, `],"success":true}`)
	}
	io.WriteString(w, "]")
}

// resetPeaks lets the system count the peaks of the processes' memory from now on.
func (in *installation) resetPeaks() {
	for _, p := range append([]*process{in.server}, in.workers...) {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid()), []byte("5"), 0); err != nil {
			in.t.Log("peaks are those of the whole life: ", err)
		}
	}
}

// peak is the most memory that a process has had, in bytes.
func (in *installation) peak(p *process) int64 { return peakOf(in.t, p.pid()) }

// evaluatorPeaks are the peaks of the worker's children, in MiB.
func (in *installation) evaluatorPeaks() (mib []int64) {
	for _, pid := range childrenOf(in.workers[0].pid()) {
		mib = append(mib, peakOf(in.t, pid)>>20)
	}
	return mib
}

func peakOf(t testing.TB, pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0 // it has ended
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the system does not say how much memory a process has had")
	return 0
}
