//go:build fault

package fault

import (
	"testing"
	"time"

	"stepwell"
)

func TestPlan(t *testing.T) {
	if got := parse("page-saved:kill:3,select-saved:lose,claim-taken:20ms:2,"); len(got) != 3 ||
		got[0] != (entry{name: PageSaved, action: "kill", at: 3}) ||
		got[1] != (entry{name: SelectSaved, action: "lose", at: 1}) ||
		got[2] != (entry{name: ClaimTaken, action: "20ms", stall: 20 * time.Millisecond, at: 2}) {
		t.Errorf("parsed as %+v", got)
	}
	for _, bad := range []string{"page-saved", "page-saved:kil", "page-saved:kill:x", "page-saved:kill:1:2"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken as a plan", bad)
				}
			}()
			parse(bad)
		}()
	}
	t.Setenv(Variable, "page-saved:lose:2,claim-taken:30ms:1")
	var lost []error
	for range 3 {
		lost = append(lost, Error(PageSaved))
	}
	if lost[0] != nil || lost[2] != nil || stepwell.KindOf(lost[1]) != stepwell.KindUnavailable {
		t.Errorf("three passages: %v", lost)
	}
	began := time.Now()
	Point(ClaimTaken)
	stalled := time.Since(began)
	for range 100 {
		Point(ClaimTaken)
	}
	if stalled < 30*time.Millisecond || time.Since(began) > stalled+100*30*time.Millisecond {
		t.Errorf("stalled for %v, a hundred times more until %v", stalled, time.Since(began))
	}
}
