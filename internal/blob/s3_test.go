package blob

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"stepwell"
	"stepwell/internal/devstack/stacktest"
)

// withOptions makes the client of a store anew.
func (s *Store) withOptions(change func(*s3.Options)) {
	s.s3.client = s3.New(s.s3.client.Options(), change)
}

// TestS3Failures has the server fail in all its ways: each is an outage with a reason that
// shows neither key nor address, and none says that a blob is lost.
func TestS3Failures(t *testing.T) {
	t.Parallel()
	s, server := openBucket(t)
	const key = "org/run/x"
	if err := s.Put(t.Context(), key, strings.NewReader("there")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		{"500", stacktest.Refuse(500, "InternalError"), "The blob store fails"},
		{"503", stacktest.Refuse(503, "SlowDown"), "The blob store is overloaded"},
		{"403", stacktest.Refuse(403, "AccessDenied"), "The blob store refuses access"},
		{"no bucket", stacktest.Refuse(404, "NoSuchBucket"), "The blob store has no such bucket"},
		{"full", stacktest.Refuse(507, "XMinioStorageFull"), "The blob store is full"},
		{"hangs", stacktest.Hang, "The blob store does not answer"},
		{"cut", stacktest.Cut, "The blob store"},
		{"a page for people", func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "<html>not here</html>", http.StatusNotFound)
			return true
		}, "The blob store"},
	} {
		server.Fail(test.fault)
		limit := 30 * time.Second
		if test.name == "hangs" {
			limit = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, getErr := readAll(ctx, s, key)
		putErr := s.Put(ctx, key, strings.NewReader("new"))
		if test.name == "cut" { // S3 is done when it answers: what follows does not matter
			putErr = getErr
		}
		failed, deleteErr := s.Delete(ctx, key)
		cancel()
		for op, err := range map[string]error{"get": getErr, "put": putErr, "delete": deleteErr} {
			message := stepwell.MessageOf(err)
			if !stepwell.IsBlobStoreAway(err) || !strings.HasPrefix(message, test.want) || strings.Contains(message, key) || strings.Contains(message, "127.0.0.1") {
				t.Errorf("%s, %s: %q (%v)", test.name, op, message, err)
			}
		}
		if len(failed) != 1 {
			t.Errorf("%s: %d of 1 keys failed", test.name, len(failed))
		}
	}
	server.Fail(nil)
	if got, err := readAll(t.Context(), s, key); err != nil || string(got) != "there" {
		t.Errorf("after all that: %q, %v", got, err)
	}
}

// TestS3Access: the server of these tests checks signatures, and a bucket that is missing is
// no missing blob.
func TestS3Access(t *testing.T) {
	t.Parallel()
	s, server := openBucket(t)
	s.withOptions(func(o *s3.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "stepwell-test-access", SecretAccessKey: "another"}, nil
		})
	})
	err := s.Put(t.Context(), "org/x", strings.NewReader("x"))
	if !stepwell.IsBlobStoreAway(err) || !strings.HasPrefix(stepwell.MessageOf(err), "The blob store refuses access") {
		t.Errorf("a wrong secret: %v", err)
	}
	other, err := Open(t.Context(), strings.Replace(server.URL(), stacktest.Bucket, "no-such-bucket", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Get(t.Context(), "org/x"); !stepwell.IsBlobStoreAway(err) {
		t.Errorf("get from a missing bucket: %v", err)
	}
	if err := other.Put(t.Context(), "org/x", strings.NewReader("x")); !stepwell.IsBlobStoreAway(err) {
		t.Errorf("put to a missing bucket: %v", err)
	}
}

// TestS3Unfinished ends the uploads in parts that dead writers have left.
func TestS3Unfinished(t *testing.T) {
	t.Parallel()
	s, _ := openBucket(t)
	begin := func() *string {
		out, err := s.s3.client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &s.s3.name, Key: aws.String("org/run/dead")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.s3.client.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &s.s3.name, Key: aws.String("org/run/dead"), UploadId: out.UploadId,
			PartNumber: aws.Int32(1), Body: bytes.NewReader(random(1000))})
		if err != nil {
			t.Fatal(err)
		}
		return out.UploadId
	}
	begin()
	begin()
	count := func() int {
		out, err := s.s3.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &s.s3.name})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Uploads)
	}
	if err := s.RemoveUnfinished(t.Context(), time.Hour); err != nil || count() != 2 {
		t.Errorf("%d uploads, %v: young ones stay", count(), err)
	}
	if err := s.RemoveUnfinished(t.Context(), -time.Hour); err != nil || count() != 0 {
		t.Errorf("%d uploads, %v: old ones go", count(), err)
	}
}

// TestSilence: a connection to a store that says nothing breaks, one that goes on writing
// while its answer is awaited does not.
func TestSilence(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const silence = 2 * time.Second
	bound := &boundConn{conn, silence}
	broke := make(chan time.Time, 1)
	go func() {
		_, _ = bound.Read(make([]byte, 1)) // nobody answers
		broke <- time.Now()
	}()
	var last time.Time
	for began := time.Now(); time.Since(began) < silence*3/2; {
		if _, err := bound.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		last = time.Now()
		<-time.After(50 * time.Millisecond)
	}
	select {
	case at := <-broke:
		if at.Before(last) {
			t.Error("the read broke while there were writes")
		}
	case <-time.After(20 * time.Second):
		t.Error("a silent connection does not break")
	}
}
