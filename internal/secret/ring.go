package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
)

const (
	keySize = 32 // bytes: AES-256

	// sealedVersion is the first byte of a sealed value. A change of the layout
	// below takes the next number, and Open goes on to read the old one.
	sealedVersion = 1

	// wrappedSize is the size of a sealed data key: nonce, key, tag.
	wrappedSize = 12 + keySize + 16
)

// ErrUnknownKey is in the error of Open when a value was sealed under a key that
// the ring does not hold (any more).
var ErrUnknownKey = errors.New("the key that sealed the value is not in the key ring")

// ErrNotAuthentic is in the error of Open when a value was changed, cut, or
// sealed for another place than the one given.
var ErrNotAuthentic = errors.New("the sealed value is damaged or belongs to another place")

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Ring is the set of keys that seal secrets at rest. The first seals, all open.
// It is safe for concurrent use.
type Ring struct {
	// ReadAgain gives the text of the ring as it is now; nil when it never changes. It is
	// set before the ring is used, and asked when a value is sealed under an unknown key.
	ReadAgain func() (string, error)

	now atomic.Pointer[keySet]
}

// keySet is what a ring holds at a time.
type keySet struct {
	text    string // that it was read from
	current string
	keys    map[string]cipher.AEAD
}

// NewKey makes a key in the form that ParseRing reads after the colon: 32
// random bytes in base64.
func NewKey() string {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// ParseRing reads `id1:base64key,id2:base64key`. Ids are 1 to 64 characters of
// A-Z a-z 0-9 . _ -, keys are 32 bytes in base64 (standard or URL alphabet,
// padding optional). White space around entries is ignored. No key at all is
// an error, as is an id that occurs twice. Errors name ids and never keys.
func ParseRing(text string) (*Ring, error) {
	keys, err := parseKeys(text)
	if err != nil {
		return nil, err
	}
	r := &Ring{}
	r.now.Store(keys)
	return r, nil
}

// Current is the id of the key that seals.
func (r *Ring) Current() string { return r.now.Load().current }

// Reload takes in what ReadAgain gives; changed reports whether it is anything new. After
// an error the ring is as it was.
func (r *Ring) Reload() (changed bool, err error) {
	if r.ReadAgain == nil {
		return false, nil
	}
	text, err := r.ReadAgain()
	if err != nil || text == r.now.Load().text {
		return false, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return false, err
	}
	r.now.Store(keys)
	return true, nil
}

// key gives the key of an id. An unknown one may have come since the ring was read.
func (r *Ring) key(id string) (cipher.AEAD, error) {
	if key, ok := r.now.Load().keys[id]; ok {
		return key, nil
	}
	if _, err := r.Reload(); err != nil {
		return nil, fmt.Errorf("%w: id %q, and the ring was not read again: %w", ErrUnknownKey, id, err)
	}
	if key, ok := r.now.Load().keys[id]; ok {
		return key, nil
	}
	return nil, fmt.Errorf("%w: id %q", ErrUnknownKey, id)
}

func parseKeys(text string) (*keySet, error) {
	r := &keySet{text: text, keys: map[string]cipher.AEAD{}}
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		id, encoded, ok := strings.Cut(entry, ":")
		if !ok || !keyID.MatchString(id) {
			return nil, fmt.Errorf("encryption key %d: want id:base64key, the id of letters, digits, '.', '_' and '-'", i+1)
		}
		if _, taken := r.keys[id]; taken {
			return nil, fmt.Errorf("encryption key %d: the id %q occurs twice", i+1, id)
		}
		key, err := decodeKey(encoded)
		if err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", id, err)
		}
		if r.keys[id], err = newAEAD(key); err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", id, err)
		}
		if r.current == "" {
			r.current = id
		}
	}
	if r.current == "" {
		return nil, errors.New("no encryption key is configured")
	}
	return r, nil
}

// decodeKey reads 32 bytes of base64 of any alphabet and padding.
func decodeKey(text string) ([]byte, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(strings.TrimSpace(text), "="))
	key, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(key) != keySize { // the decoder's error may quote the key
		return nil, fmt.Errorf("want %d bytes in base64", keySize)
	}
	return key, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts plaintext with AES-256-GCM under a new data key, which is
// itself sealed under the ring's first key. aad names the place of the value
// (organization, table and purpose, row id) and must be given to Open again.
// The result is at most 180 bytes longer than plaintext:
//
//	version 1 | length of id | id | sealed data key (60) | nonce 12 | ciphertext | tag 16
func (r *Ring) Seal(plaintext []byte, aad ...string) ([]byte, error) {
	dataKey := make([]byte, keySize)
	rand.Read(dataKey) // never fails
	data, err := newAEAD(dataKey)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	now := r.now.Load()
	head := append([]byte{sealedVersion, byte(len(now.current))}, now.current...)
	place := encodePlace(head, aad)
	sealed := now.keys[now.current].Seal(head, nil, dataKey, place)
	return data.Seal(sealed, nil, plaintext, place), nil
}

// Open decrypts what Seal made, with the same aad. Its errors are
// ErrUnknownKey and ErrNotAuthentic.
func (r *Ring) Open(sealed []byte, aad ...string) ([]byte, error) {
	id, head, rest, err := split(sealed)
	if err != nil {
		return nil, err
	}
	ring, err := r.key(id)
	if err != nil {
		return nil, err
	}
	place := encodePlace(head, aad)
	dataKey, err := ring.Open(nil, nil, rest[:wrappedSize], place)
	if err != nil {
		return nil, ErrNotAuthentic
	}
	data, err := newAEAD(dataKey)
	if err != nil {
		return nil, ErrNotAuthentic
	}
	plaintext, err := data.Open([]byte{}, nil, rest[wrappedSize:], place)
	if err != nil {
		return nil, ErrNotAuthentic
	}
	return plaintext, nil
}

// NeedsRotation reports whether a sealed value is not sealed under the ring's
// first key: open it, seal it, store it.
func (r *Ring) NeedsRotation(sealed []byte) bool {
	id, _, _, err := split(sealed)
	return err != nil || id != r.Current()
}

// split gives the key id of a sealed value, its head (version and id) and the rest.
func split(sealed []byte) (id string, head, rest []byte, err error) {
	if len(sealed) < 2 || sealed[0] != sealedVersion {
		return "", nil, nil, ErrNotAuthentic
	}
	end := 2 + int(sealed[1])
	if len(sealed) < end+wrappedSize {
		return "", nil, nil, ErrNotAuthentic
	}
	return string(sealed[2:end]), sealed[:end], sealed[end:], nil
}

// encodePlace makes the associated data. Every part carries its length, so that
// ("ab", "c") and ("a", "bc") differ.
func encodePlace(head []byte, aad []string) []byte {
	place := append([]byte("stepwell secret\x00"), head...)
	for _, part := range aad {
		place = binary.AppendUvarint(place, uint64(len(part)))
		place = append(place, part...)
	}
	return place
}
