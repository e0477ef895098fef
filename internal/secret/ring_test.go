package secret

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func ring(t testing.TB, text string) *Ring {
	t.Helper()
	r, err := ParseRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealOpen(t *testing.T) {
	t.Parallel()
	r := ring(t, "a:"+NewKey())
	for _, plaintext := range []string{"", "x", strings.Repeat("long ", 10_000)} {
		sealed, err := r.Seal([]byte(plaintext), "org", "systems.credentials", "row")
		if err != nil {
			t.Fatal(err)
		}
		if len(plaintext) > 8 && bytes.Contains(sealed, []byte(plaintext[:8])) { // a short one occurs by chance
			t.Error("the plaintext is visible")
		}
		if extra := len(sealed) - len(plaintext); extra > 180 {
			t.Errorf("sealed is %d bytes longer", extra)
		}
		opened, err := r.Open(sealed, "org", "systems.credentials", "row")
		if err != nil || string(opened) != plaintext || opened == nil {
			t.Errorf("opened %q, %v", opened, err)
		}
		again, _ := r.Seal([]byte(plaintext), "org", "systems.credentials", "row")
		if bytes.Equal(sealed, again) {
			t.Error("two seals are equal")
		}
	}
}

func TestSealedValueIsBoundToItsPlace(t *testing.T) {
	t.Parallel()
	r := ring(t, "a:"+NewKey())
	sealed, err := r.Seal([]byte("value"), "ab", "c")
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range [][]string{{"a", "bc"}, {"abc"}, {"ab", "c", ""}, {"", "ab", "c"}, {"ab"}, {}, {"c", "ab"}} {
		if _, err := r.Open(sealed, place...); !errors.Is(err, ErrNotAuthentic) {
			t.Errorf("opened at %q: %v", place, err)
		}
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	t.Parallel()
	r := ring(t, "a:"+NewKey()+",b:"+NewKey())
	sealed, err := r.Seal([]byte("value"), "place")
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 3 // turns id a into b too
		if _, err := r.Open(changed, "place"); err == nil {
			t.Errorf("byte %d changed and opened", i)
		}
		if _, err := r.Open(sealed[:i], "place"); !errors.Is(err, ErrNotAuthentic) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := r.Open(append(bytes.Clone(sealed), 0), "place"); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("with a byte more: %v", err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, next := "2025:"+NewKey(), "2026:"+NewKey()
	sealed, err := ring(t, old).Seal([]byte("value"), "place")
	if err != nil {
		t.Fatal(err)
	}
	both := ring(t, " "+next+" , "+old+",")
	if !both.NeedsRotation(sealed) {
		t.Error("sealed under the old key and needs no rotation")
	}
	plaintext, err := both.Open(sealed, "place")
	if err != nil || string(plaintext) != "value" {
		t.Fatalf("opened %q, %v", plaintext, err)
	}
	rotated, err := both.Seal(plaintext, "place")
	if err != nil || both.NeedsRotation(rotated) {
		t.Fatalf("rotated needs rotation, %v", err)
	}
	if _, err := ring(t, next).Open(rotated, "place"); err != nil {
		t.Error(err)
	}
	if _, err := ring(t, next).Open(sealed, "place"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("opened without its key: %v", err)
	}
	if !both.NeedsRotation([]byte("junk")) {
		t.Error("junk needs no rotation")
	}
}

func TestParseRingRefuses(t *testing.T) {
	t.Parallel()
	key := NewKey()
	for _, text := range []string{
		"", " , ", key, ":" + key, "a:", "a:" + key[:20], "a:" + key + "AAAA", "a b:" + key, "a:" + key + ",a:" + NewKey(), "a:!" + key[1:],
	} {
		_, err := ParseRing(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if strings.Contains(err.Error(), key[2:12]) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	raw := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(key)
	sealed, err := ring(t, "a:"+key).Seal([]byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring(t, "a:"+raw).Open(sealed); err != nil {
		t.Errorf("URL alphabet: %v", err)
	}
}

// TestRingIsReadAgain opens a value that was sealed under a key that came later.
func TestRingIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := "one:"+NewKey(), "two:"+NewKey()
	text := first
	r, err := ParseRing(first)
	if err != nil {
		t.Fatal(err)
	}
	r.ReadAgain = func() (string, error) { return text, nil }
	newer, err := ParseRing(second + "," + first)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := newer.Seal([]byte("plain"), "place")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open(sealed, "place"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("before the key came: %v", err)
	}
	text = "broken"
	if _, err := r.Open(sealed, "place"); !errors.Is(err, ErrUnknownKey) || r.Current() != "one" {
		t.Errorf("a broken ring: %v, sealing under %s", err, r.Current())
	}
	text = second + "," + first
	if plain, err := r.Open(sealed, "place"); err != nil || string(plain) != "plain" || r.Current() != "two" || r.NeedsRotation(sealed) {
		t.Errorf("%q %v, sealing under %s", plain, err, r.Current())
	}
	if changed, err := r.Reload(); changed || err != nil {
		t.Errorf("read again without a change: %v %v", changed, err)
	}
}
