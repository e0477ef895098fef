package stacktest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Bucket is the bucket of every S3 server.
const Bucket = "stepwell-test"

// The account of every S3 server, in the standard variables of the test process.
const (
	s3Access = "stepwell-test-access"
	s3Secret = "stepwell-test-secret"
)

var (
	builtS3     = sync.OnceValues(func() (string, error) { return buildBinary("s3server", "internal/blob/s3server") })
	credentials = sync.OnceValue(func() error {
		for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3Access, "AWS_SECRET_ACCESS_KEY": s3Secret} {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		return nil
	})
)

// S3 is an S3 server (see internal/blob/s3server) behind a proxy that can fail.
type S3 struct {
	// Dir is where the server keeps the bucket's objects, as files.
	Dir   string
	proxy string
	drop  func()
	fault atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	asked atomic.Int64
}

// StartS3 starts an S3 server with an empty bucket, which ends with the test. The test
// process's AWS variables are its account's from then on.
func StartS3(t testing.TB) *S3 {
	t.Helper()
	binary, err := builtS3()
	if err == nil {
		err = credentials()
	}
	if err != nil {
		t.Fatal("build the S3 server: ", err)
	}
	root, metadata := t.TempDir(), t.TempDir()
	s := &S3{Dir: filepath.Join(root, Bucket)}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // the server takes it
	server := exec.Command(binary, address, root, metadata)
	server.Env = []string{"AWS_ACCESS_KEY_ID=" + s3Access, "AWS_SECRET_ACCESS_KEY=" + s3Secret, "HOME=" + root, "TMPDIR=" + os.TempDir()}
	output, err := os.Create(filepath.Join(metadata, ".log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = output, output
	input, err := server.StdinPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal("start the S3 server: ", err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = server.Process.Signal(syscall.SIGKILL)
		_ = server.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(output.Name())
			t.Logf("log of the S3 server: %.5000s", log)
		}
		_ = output.Close()
	})
	s.startProxy(t, address)
	awaitTCP(t, address)
	return s
}

// startProxy serves what the server does, unless Fail says otherwise. The Host header,
// which signatures cover, stays the client's.
func (s *S3) startProxy(t testing.TB, address string) {
	target := &url.URL{Scheme: "http", Host: address}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.proxy = "http://" + listener.Addr().String()
	proxy := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if fault := s.fault.Load(); fault != nil && (*fault)(w, r) {
			return
		}
		forward.ServeHTTP(w, r)
	})}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	proxy.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if open[c] = true; state == http.StateClosed {
			delete(open, c)
		}
	}
	s.drop = func() {
		mu.Lock()
		defer mu.Unlock()
		for c := range open {
			_ = c.Close()
		}
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = proxy.Serve(listener) }) // until it is closed
	t.Cleanup(func() {
		_ = proxy.Close()
		serving.Wait()
	})
}

// Fail has requests go wrong: fault answers one in place of the server, or gives false to
// let it pass. Nil ends that.
func (s *S3) Fail(fault func(w http.ResponseWriter, r *http.Request) bool) {
	if fault == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&fault)
}

// CloseConnections ends the connections of all clients, those that hang too.
func (s *S3) CloseConnections() { s.drop() }

// Refuse is a fault: S3's own form of an error.
func Refuse(status int, code string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>made by the test</Message><RequestId>1</RequestId></Error>`, code)
		return true
	}
}

// Hang is a fault: no answer until the client goes away.
func Hang(_ http.ResponseWriter, r *http.Request) bool {
	_, _ = io.Copy(io.Discard, r.Body) // else it is not seen that the client goes
	<-r.Context().Done()
	return true
}

// Cut is a fault: the connection ends in the middle of the answer.
func Cut(w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Length", "1000000")
	_, _ = w.Write([]byte(strings.Repeat("x", 1000))) // the client sees what is missing
	panic(http.ErrAbortHandler)
}

// Asked is how many requests came so far.
func (s *S3) Asked() int { return int(s.asked.Load()) }

// URL names the bucket as STEPWELL_BLOB_URL does.
func (s *S3) URL() string {
	q := url.Values{"region": {"us-east-1"}, "endpoint": {s.proxy}, "use_path_style": {"true"}}
	return "s3://" + Bucket + "?" + q.Encode()
}

// Environment are the variables by which another process uses the server.
func (s *S3) Environment() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s3Access, "AWS_SECRET_ACCESS_KEY=" + s3Secret}
}

// awaitTCP waits until somebody listens at an address.
func awaitTCP(t testing.TB, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("nobody listens at %s: %v", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
