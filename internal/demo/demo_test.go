package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start runs an upstream for the time of a test.
func start(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// reply is an answer as the tests read it.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the body.
func (r reply) json(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal(r.body, into); err != nil {
		t.Fatalf("the answer %.200q is no JSON: %v", r.body, err)
	}
}

// send sends a request with headers given as name, value, name, value…
func send(t testing.TB, method, url, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, text}
}

// page is the union of the shapes that pages have.
type page struct {
	Data       []Order `json:"data"`
	Items      []Order `json:"items"`
	NextCursor *string `json:"next_cursor"`
	Total      int     `json:"total"`
	Paging     struct {
		Next *string `json:"next"`
	} `json:"paging"`
}

// wantAll fails unless the orders are the first n of the upstream, in order.
func wantAll(t *testing.T, s *Server, got []Order, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("pulled %d orders, want %d", len(got), n)
	}
	for i, o := range got {
		if o != s.Order(i) {
			t.Fatalf("order %d is %+v, want %+v", i, o, s.Order(i))
		}
	}
}

func TestEveryPaginationGivesEveryOrder(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Pages: 7, PageSize: 13})
	const limit = 10 // 91 orders: nine full pages and a short one

	pulls := map[string]func(t *testing.T) []Order{
		"cursor": func(t *testing.T) (all []Order) {
			url := s.URL() + "/orders?run=cursor&limit=10"
			for next := ""; ; {
				var p page
				send(t, "GET", url+next, "").json(t, &p)
				all = append(all, p.Data...)
				if p.NextCursor == nil {
					return all
				}
				next = "&cursor=" + *p.NextCursor
			}
		},
		"by-page": func(t *testing.T) (all []Order) {
			for n := 1; ; n++ {
				var p page
				send(t, "GET", s.URL()+"/orders/by-page?run=by-page&limit=10&page="+strconv.Itoa(n), "").json(t, &p)
				all = append(all, p.Data...)
				if len(p.Data) < limit {
					return all
				}
			}
		},
		"by-offset": func(t *testing.T) (all []Order) {
			for {
				var p page
				send(t, "GET", s.URL()+"/orders/by-offset?run=by-offset&limit=10&offset="+strconv.Itoa(len(all)), "").json(t, &p)
				all = append(all, p.Items...)
				if len(all) >= p.Total {
					return all
				}
			}
		},
		"by-link": func(t *testing.T) (all []Order) {
			for path := "/orders/by-link?run=by-link&limit=10"; ; {
				r := send(t, "GET", s.URL()+path, "")
				var p []Order
				r.json(t, &p)
				all = append(all, p...)
				link := r.header.Get("Link")
				if link == "" {
					return all
				}
				path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
			}
		},
		"by-next": func(t *testing.T) (all []Order) {
			for url := s.URL() + "/orders/by-next?run=by-next&limit=10"; ; {
				var p page
				send(t, "GET", url, "").json(t, &p)
				all = append(all, p.Data...)
				if p.Paging.Next == nil {
					return all
				}
				url = *p.Paging.Next
			}
		},
	}
	for name, pull := range pulls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantAll(t, s, pull(t), s.Orders())
			starts := s.Starts(name)
			if len(starts) != 10 {
				t.Fatalf("%d requests were counted, want 10", len(starts))
			}
			for i, got := range starts {
				if got.Page != i+1 || got.Status != 200 || got.At.IsZero() {
					t.Errorf("request %d is counted as %+v", i+1, got)
				}
			}
		})
	}
}

func TestDataIsEqualForEqualSeeds(t *testing.T) {
	t.Parallel()
	a, b, c := newData(5, 50, 300), newData(5, 50, 300), newData(6, 50, 300)
	if !bytes.Equal(a.text, b.text) {
		t.Error("two upstreams with one seed differ")
	}
	if bytes.Equal(a.text, c.text) {
		t.Error("two upstreams with different seeds are equal")
	}
}

func TestOrdersAreWrittenAsJSONWould(t *testing.T) {
	t.Parallel()
	d := newData(3, 100_001, 3_000)
	for i := range 3_000 {
		want, err := json.Marshal(d.order(i))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.appendOrder(nil, i); !bytes.Equal(got, want) {
			t.Fatalf("order %d is %s, want %s", i, got, want)
		}
	}
}

func TestPageOfAHundredIsAbout18KB(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if got := len(send(t, "GET", s.URL()+"/orders", "").body); got < 17_000 || got > 19_000 {
		t.Errorf("a page of 100 orders has %d bytes, want about 18,000", got)
	}
}

func TestOrdersBeyondTheRenderedOnes(t *testing.T) {
	t.Parallel()
	d := newData(1, 10, renderedOrders+10)
	var got []Order
	text := append(d.appendOrders([]byte("["), renderedOrders-3, renderedOrders+3), ']')
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for i, o := range got {
		if want := d.order(renderedOrders - 3 + i); o != want {
			t.Errorf("order %d is %+v, want %+v", i, o, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("got %d orders, want 6", len(got))
	}
}

func TestPagesOfTheQueryAndCap(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Pages: 2, PageSize: 10})
	var p page
	send(t, "GET", s.URL()+"/orders/by-page?pages=500&page=500&limit=10", "").json(t, &p)
	if p.Total != 5000 || len(p.Data) != 10 || p.Data[9] != s.Order(4999) {
		t.Errorf("page 500 of 500 holds %d orders of %d", len(p.Data), p.Total)
	}
	p = page{}
	send(t, "GET", s.URL()+"/orders/by-page?limit=10&cap=4", "").json(t, &p)
	p2 := page{}
	send(t, "GET", s.URL()+"/orders/by-page?limit=10&page=9&run=beyond", "").json(t, &p2)
	if len(p2.Data) != 0 || s.Hits(PageKey{"beyond", "/orders/by-page", 9}) != 1 {
		t.Errorf("a page behind the last one holds %d orders", len(p2.Data))
	}
	if len(p.Data) != 4 || p.Total != 20 {
		t.Errorf("a capped page holds %d orders of %d, want 4 of 20", len(p.Data), p.Total)
	}
}

func TestStuckCursorRepeatsItsPage(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Pages: 5, PageSize: 10})
	var seen []string
	for cursor := ""; len(seen) < 4; {
		var p page
		send(t, "GET", s.URL()+"/orders?stuck=2&cursor="+cursor, "").json(t, &p)
		cursor = *p.NextCursor
		seen = append(seen, p.Data[0].ID)
	}
	if want := []string{s.Order(0).ID, s.Order(10).ID, s.Order(10).ID, s.Order(10).ID}; strings.Join(seen, " ") != strings.Join(want, " ") {
		t.Errorf("pages began with %v, want %v", seen, want)
	}
}

func TestFlakyPagesSucceedOnRepetition(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Pages: 6, PageSize: 10})
	url := s.URL() + "/orders/by-page?run=r&fail=3&failTimes=2&failStatus=503&retryAfter=7&page="
	for n, want := range map[int][]int{1: {200, 200}, 3: {503, 503, 200, 503}, 6: {503, 503, 200}} {
		for i, status := range want {
			r := send(t, "GET", url+strconv.Itoa(n), "")
			if r.status != status {
				t.Errorf("request %d for page %d got %d, want %d", i+1, n, r.status, status)
			}
			if got := r.header.Get("Retry-After"); (got == "7") != (status == 503) {
				t.Errorf("request %d for page %d has Retry-After %q", i+1, n, got)
			}
		}
		if got := s.Hits(PageKey{"r", "/orders/by-page", n}); got != len(want) {
			t.Errorf("page %d was counted %d times, want %d", n, got, len(want))
		}
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	l, now := newLimiter(), time.Now()
	for i, want := range []bool{true, true, false, false} {
		if got := l.allow("a", "/orders", 2, now); got != want {
			t.Errorf("request %d in one second: allowed %v, want %v", i+1, got, want)
		}
	}
	if !l.allow("b", "/orders", 2, now) || !l.allow("a", "/customers", 2, now) {
		t.Error("another run key or route shares the limit")
	}
	if !l.allow("a", "/orders", 2, now.Add(time.Second)) {
		t.Error("a second later nothing is allowed")
	}

	s := start(t, Options{})
	send(t, "GET", s.URL()+"/orders?rate=1", "")
	r := send(t, "GET", s.URL()+"/orders?rate=1", "")
	// A machine so busy that a second lies between the two lets both pass.
	if r.status == 429 && r.header.Get("Retry-After") != "1" {
		t.Errorf("a 429 has Retry-After %q", r.header.Get("Retry-After"))
	}
}

func TestDelayAndOverlap(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	began := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { send(t, "GET", s.URL()+"/orders?delay=300ms", "", "X-Run-Key", "slow") })
	}
	wg.Wait()
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("three delayed requests took %v, less than the delay", took)
	}
	key := PageKey{"slow", "/orders", 1}
	if s.Hits(key) != 3 || s.MaxConcurrent(key) < 2 {
		t.Errorf("counted %d requests, %d at once; want 3, at least 2 at once", s.Hits(key), s.MaxConcurrent(key))
	}
	send(t, "GET", s.URL()+"/orders", "", "X-Run-Key", "single")
	send(t, "GET", s.URL()+"/orders", "", "X-Run-Key", "single")
	if got := s.MaxConcurrent(PageKey{"single", "/orders", 1}); got != 1 {
		t.Errorf("two requests one after the other count as %d at once", got)
	}
}

func TestReportsTakeHalfASecondUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	began := time.Now()
	send(t, "GET", s.URL()+"/reports", "")
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("a report took %v, want half a second", took)
	}
	if o, err := s.obstacles(map[string][]string{"delay": {"1ms"}}, 500*time.Millisecond); err != nil || o.delay != time.Millisecond {
		t.Errorf("with ?delay=1ms a report waits %v (%v)", o.delay, err)
	}
}

func TestCloseCutsWaitingRequests(t *testing.T) {
	t.Parallel()
	s, err := NewServer(Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.URL() + "/orders?delay=5m&run=waiting")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		ended <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); s.Hits(PageKey{"waiting", "/orders", 1}) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the request did not arrive")
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the request outlived the server")
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestCreateOrderHonoursIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	const body = `{"customerId":"cus_00001","product":"oak stool","quantity":2,"totalCents":8000}`
	first := send(t, "POST", s.URL()+"/orders", body, "Idempotency-Key", "k1")
	again := send(t, "POST", s.URL()+"/orders", body, "Idempotency-Key", "k1")
	other := send(t, "POST", s.URL()+"/orders", body, "Idempotency-Key", "k2")
	clash := send(t, "POST", s.URL()+"/orders", `{"customerId":"cus_00002"}`, "Idempotency-Key", "k1")
	if first.status != 201 || again.status != 201 || other.status != 201 || clash.status != 422 {
		t.Fatalf("statuses %d %d %d %d, want 201 201 201 422", first.status, again.status, other.status, clash.status)
	}
	if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repeated key gave %s, want %s again", again.body, first.body)
	}
	if bytes.Equal(first.body, other.body) || s.Stats().Created != 2 {
		t.Errorf("two keys made %d orders, want 2", s.Stats().Created)
	}
	var o Order
	first.json(t, &o)
	if got := send(t, "GET", s.URL()+"/orders/"+o.ID, ""); !bytes.Equal(got.body, first.body) {
		t.Errorf("GET /orders/%s gives %s, want %s", o.ID, got.body, first.body)
	}
	for _, bad := range []string{``, `[]`, `{"customerId":"cus_99999"}`, `{"customerId":"cus_00001","quantity":"two"}`} {
		if got := send(t, "POST", s.URL()+"/orders", bad); got.status != 400 {
			t.Errorf("the order %q got %d, want 400", bad, got.status)
		}
	}
}

func TestLostAnswerHasItsEffect(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/orders?lose=1", strings.NewReader(`{"customerId":"cus_00001"}`))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("the answer arrived with %d", resp.StatusCode)
	}
	if got := s.Stats().Created; got != 1 {
		t.Errorf("%d orders were made, want 1", got)
	}
	if got := send(t, "POST", s.URL()+"/orders?lose=1", `{"customerId":"cus_00001"}`); got.status != 201 {
		t.Errorf("the second request got %d, want 201", got.status)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	var token struct {
		AccessToken string `json:"access_token"`
	}
	r := send(t, "POST", s.URL()+"/oauth/token", "grant_type=client_credentials&client_id="+User+"&client_secret="+Password,
		"Content-Type", "application/x-www-form-urlencoded")
	r.json(t, &token)
	for _, c := range []struct {
		path, header, value string
		want                int
	}{
		{"/auth/bearer/orders", "Authorization", "Bearer " + Token, 200},
		{"/auth/bearer/customers/cus_00001", "Authorization", "Bearer " + Token, 200},
		{"/auth/bearer/orders", "Authorization", "Bearer " + token.AccessToken, 200},
		{"/auth/bearer/orders", "Authorization", "Bearer wrong", 401},
		{"/auth/bearer/orders", "Authorization", "", 401},
		{"/auth/basic/orders", "Authorization", "Basic ZGVtbzpkZW1vLXBhc3N3b3Jk", 200},
		{"/auth/basic/orders", "Authorization", "Basic ZGVtbzp3cm9uZw==", 401},
		{"/auth/header/orders", "X-API-Key", Token, 200},
		{"/auth/header/orders", "X-API-Key", "wrong", 401},
	} {
		r := send(t, "GET", s.URL()+c.path, "", c.header, c.value)
		if r.status != c.want {
			t.Errorf("%s with %s %q got %d, want %d", c.path, c.header, c.value, r.status, c.want)
		}
		if (r.header.Get("WWW-Authenticate") != "") != (c.want == 401) {
			t.Errorf("%s: %d with WWW-Authenticate %q", c.path, r.status, r.header.Get("WWW-Authenticate"))
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	for path, want := range map[string]int{
		"/orders?limit=0": 400, "/orders?limit=1001": 400, "/orders?limit=x": 400, "/orders?cursor=x": 400,
		"/orders?cursor=YWZ0ZXI6LTE": 400, "/orders/by-page?page=0": 400, "/orders/by-offset?offset=-1": 400,
		"/orders?delay=1h": 400, "/orders?delay=soon": 400, "/orders?fail=-1": 400, "/orders?failStatus=200": 400,
		"/orders?pages=99999999": 400, "/orders?stuck=x": 400,
		"/orders?run=" + strings.Repeat("k", 301): 400,
		"/orders/ord_00000000":                    404, "/orders/ord_99999999": 404, "/orders/x": 404, "/customers/cus_00101": 404, "/nothing": 404,
		"/orders/by-page?page=201": 200, "/orders/ord_00020000": 200, "/customers/cus_00100": 200, "/customers?per_page=5": 200,
	} {
		r := send(t, "GET", s.URL()+path, "")
		var e struct {
			Error string `json:"error"`
		}
		if r.json(t, &e); r.status != want || (e.Error != "") != (want >= 400) {
			t.Errorf("%s got %d %.100s, want %d", path, r.status, r.body, want)
		}
	}
	for _, opts := range []Options{{Pages: -1}, {PageSize: 1001}, {Pages: 1_000_000}, {Addr: "nowhere"}} {
		if s, err := NewServer(opts); err == nil {
			s.Close()
			t.Errorf("options %+v were accepted", opts)
		}
	}
}

func TestStatsOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	send(t, "GET", s.URL()+"/orders?run=a", "")
	send(t, "GET", s.URL()+"/orders?run=b", "")
	send(t, "GET", s.URL()+"/exports/orders.csv?limit=3&run=a", "")
	var all, a Stats
	send(t, "GET", s.URL()+"/_stats", "").json(t, &all)
	send(t, "GET", s.URL()+"/_stats?run=a", "").json(t, &a)
	if all.Total != 3 || len(all.Pages) != 3 || len(all.Starts) != 0 {
		t.Errorf("all stats are %+v", all)
	}
	if len(a.Pages) != 2 || len(a.Starts) != 2 || a.Pages[1].PageKey != (PageKey{"a", "/orders", 1}) || a.Pages[1].Hits != 1 {
		t.Errorf("the stats of run a are %+v", a)
	}
	if got := send(t, "DELETE", s.URL()+"/_stats", ""); got.status != 204 || s.Stats().Total != 0 || len(s.Starts("a")) != 0 {
		t.Errorf("after DELETE (%d) the stats are %+v", got.status, s.Stats())
	}
}

func TestOtherFormats(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	csv := string(send(t, "GET", s.URL()+"/exports/orders.csv?limit=2", "").body)
	if lines := strings.Split(strings.TrimSpace(csv), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], s.Order(0).ID+",") {
		t.Errorf("the CSV is %q", csv)
	}
	nd := bytes.Split(bytes.TrimSpace(send(t, "GET", s.URL()+"/exports/orders.ndjson?limit=2", "").body), []byte("\n"))
	var o Order
	if err := json.Unmarshal(nd[1], &o); err != nil || len(nd) != 2 || o != s.Order(1) {
		t.Errorf("the NDJSON's second line is %+v (%v)", o, err)
	}
	var e struct {
		Method, Body string
		Headers      http.Header
		Query        map[string][]string
	}
	send(t, "PATCH", s.URL()+"/echo?a=1&a=2", "hello", "X-Thing", "yes").json(t, &e)
	if e.Method != "PATCH" || e.Body != "hello" || e.Headers.Get("X-Thing") != "yes" || len(e.Query["a"]) != 2 {
		t.Errorf("the echo is %+v", e)
	}
}

// BenchmarkPage measures pages of 100 orders over kept connections, client included.
func BenchmarkPage(b *testing.B) {
	s := start(b, Options{})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Get(s.URL() + "/orders?limit=100&run=bench&cursor=YWZ0ZXI6MTAwMA")
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkRender measures a page of 100 orders that is not kept as text.
func BenchmarkRender(b *testing.B) {
	d := newData(1, 100, 100)
	dst := make([]byte, 0, 32<<10)
	for b.Loop() {
		dst = d.appendOrders(dst[:0], 1_000_000, 1_000_100)
	}
}
