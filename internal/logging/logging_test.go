package logging

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestStandardLog has net/http meet an upstream that sends bytes unasked: it prints
// them to the standard library's log. No test beside this one, for that log is one for
// the whole process.
func TestStandardLog(t *testing.T) {
	before := log.Writer()
	t.Cleanup(func() { log.SetOutput(before) })
	core, logs := observer.New(zap.DebugLevel)
	redirectStandard(zap.New(core))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the connection
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(50 * time.Millisecond) // the connection has to be idle by then, and nobody tells
		fmt.Fprint(conn, "s3cret bytes of an upstream")
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	deadline := time.Now().Add(5 * time.Second)
	for logs.Len() == 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if logs.Len() == 0 {
		t.Fatal("net/http printed nothing")
	}
	text := fmt.Sprint(logs.All()[0].Message, logs.All()[0].ContextMap())
	if !strings.Contains(text, "Unsolicited response") || strings.Contains(text, "s3cret") || logs.All()[0].Level != zap.DebugLevel {
		t.Error(text)
	}
	log.Print(strings.Repeat("x", 1000))
	if text := logs.All()[1].ContextMap()["text"]; len(text.(string)) != maxStandard {
		t.Errorf("%d bytes of a line are kept", len(text.(string)))
	}
}

func TestLevels(t *testing.T) {
	if _, err := New("loud"); err == nil {
		t.Error("any level is taken")
	}
}
