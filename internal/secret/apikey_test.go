package secret

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
)

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^sw_live_[0-9A-Za-z]{36}$`)
	seen := map[string]bool{}
	count := map[rune]int{}
	for range 2000 {
		key := NewAPIKey("sw_live")
		if !form.MatchString(key) || !CheckAPIKey(key) || seen[key] {
			t.Fatalf("key %q", key)
		}
		seen[key] = true
		for _, r := range key[8:38] {
			count[r]++
		}
	}
	// 60,000 characters: 968 of each expected, standard deviation 31.
	for _, r := range base62 {
		if n := count[r]; n < 770 || n > 1170 {
			t.Errorf("%c occurs %d times", r, n)
		}
	}
}

func TestCheckAPIKeyRefuses(t *testing.T) {
	t.Parallel()
	key := NewAPIKey("sw")
	for i := range key {
		for _, replacement := range []byte("0_é") {
			changed := key[:i] + string(replacement) + key[i+1:]
			if i >= 2 && changed != key && CheckAPIKey(changed) {
				t.Errorf("%q passes", changed)
			}
		}
		if CheckAPIKey(key[:i]) {
			t.Errorf("%q passes", key[:i])
		}
	}
	for _, bad := range []string{"", "_", key[2:], key[3:], key + "0", strings.ToUpper(key), " " + key[1:3] + " " + key[4:]} {
		if CheckAPIKey(bad) {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestChecksumIsStable(t *testing.T) {
	t.Parallel()
	const wantCRC = 0x77e5db82 // CRC-32 of thirty zeros, by another implementation
	const key = "sw_000000000000000000000000000000"
	sum := checksum([]byte(key[3:]))
	var value uint64
	for _, r := range sum {
		value = value*62 + uint64(strings.IndexRune(base62, r))
	}
	if value != wantCRC || len(sum) != 6 || !CheckAPIKey(key+sum) {
		t.Errorf("checksum %s is %#x, want %#x", sum, value, wantCRC)
	}
	if got := checksum([]byte("")); got != "000000" {
		t.Errorf("checksum of nothing %s", got)
	}
}

func TestHashAPIKey(t *testing.T) {
	t.Parallel()
	if got := hex.EncodeToString(HashAPIKey("abc")); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("hash %s", got)
	}
}
