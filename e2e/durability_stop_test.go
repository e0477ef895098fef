package e2e

import (
	"syscall"
	"testing"
	"time"
)

// stopLimit is how long SIGTERM may take.
const stopLimit = 30 * time.Second

// TestStopInTheMiddle: SIGTERM ends dev with status 0 and leaves nothing behind while
// runs go on, and the next start finishes them.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	in := startDev(t, 0)
	runs := []pull{in.start(1, 20*time.Second), in.start(300, 30*time.Millisecond), in.start(3, 6*time.Second)}
	for _, p := range runs {
		if _, ok := in.upstream.await(t.Context(), p.id, 1); !ok {
			t.Fatal("a run was not begun")
		}
	}
	in.stop()
	in.dev.start(t)
	for _, p := range runs {
		in.check(p, time.Minute, 1) // a request that is cut off at the end of the patience is repeated
	}
}

// stop ends dev with SIGTERM, in time, with status 0 and with nothing left behind.
func (in *installation) stop() {
	in.t.Helper()
	began := time.Now()
	in.dev.signal(in.t, syscall.SIGTERM)
	err, ended := in.dev.wait(stopLimit)
	if !ended {
		in.t.Fatalf("dev did not end within %s", stopLimit)
	}
	in.t.Logf("dev ended after %s", time.Since(began).Round(time.Millisecond))
	if err != nil {
		in.t.Errorf("dev ended with %v, not with status 0", err)
	}
	if left := processesUnder(in.dir); len(left) > 0 {
		in.t.Errorf("dev left behind: %v", left)
	}
}

// TestKilledDevLeavesNothing: the children of a killed dev end by themselves.
func TestKilledDevLeavesNothing(t *testing.T) {
	t.Parallel()
	in := startDev(t, 0)
	in.check(in.start(3, 0), time.Minute, 0) // evaluators and connections are up
	in.dev.kill()
	var left []string
	if !eventually(10*time.Second, func() bool { left = processesUnder(in.dir); return len(left) == 0 }) {
		t.Errorf("a killed dev left behind: %v", left)
	}
}

// TestKilledWhileStarting: a first start that is killed at any moment is finished by
// the next one.
func TestKilledWhileStarting(t *testing.T) {
	t.Parallel()
	r := random(t)
	in := newInstallation(t)
	address := freeAddress(t)
	in.dev = in.process("dev", "stepwell", []string{"dev", "--listen", address, "--data-dir", in.dataDir()}, nil)
	in.use("http://" + address + "/v1")
	for range 6 {
		if _, err := in.dev.spawn(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second)))) // a random moment of the start
		in.dev.kill()
	}
	in.dev.start(t)
	in.createTools()
	in.check(in.start(3, 0), time.Minute, 0)
}

// TestStopWithoutTemporal: SIGTERM ends dev in time while Temporal is silent.
func TestStopWithoutTemporal(t *testing.T) {
	t.Parallel()
	in := startDev(t, 0)
	runs := []pull{in.start(1, 20*time.Second), in.start(300, 30*time.Millisecond)}
	for _, p := range runs {
		if _, ok := in.upstream.await(t.Context(), p.id, 1); !ok {
			t.Fatal("a run was not begun")
		}
	}
	pause(t, in.supervised(partTemporald))
	in.stop()
	in.dev.start(t)
	for _, p := range runs {
		in.check(p, time.Minute, 1)
	}
}
