package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

// base62 is the alphabet of API keys, in the order of its digits' values.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const (
	apiKeyRandom   = 30 // characters: 178 bits
	apiKeyChecksum = 6  // characters: 62^6 is more than 2^32
)

// NewAPIKey makes `<prefix>_<30 random characters><6 characters of checksum>`.
func NewAPIKey(prefix string) string {
	random := make([]byte, 0, apiKeyRandom)
	var buf [64]byte
	for len(random) < apiKeyRandom {
		rand.Read(buf[:]) // never fails
		for _, b := range buf {
			// 248 is the largest multiple of 62 in a byte: each digit is as likely.
			if b < 248 && len(random) < apiKeyRandom {
				random = append(random, base62[b%62])
			}
		}
	}
	return prefix + "_" + string(random) + checksum(random)
}

// CheckAPIKey reports whether a key has the form and checksum of NewAPIKey, with
// any prefix. It recognizes typing errors and lookalikes without a look into
// the store; a preset key need not pass.
func CheckAPIKey(key string) bool {
	start := len(key) - apiKeyRandom - apiKeyChecksum
	if start < 2 || key[start-1] != '_' {
		return false
	}
	random := key[start : start+apiKeyRandom]
	if strings.Trim(random, base62) != "" {
		return false
	}
	return checksum([]byte(random)) == key[start+apiKeyRandom:]
}

// HashAPIKey is the form in which a key is stored and looked up: its SHA-256.
// Keys have too much entropy for a slow hash to matter.
func HashAPIKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// checksum is the CRC-32 (IEEE) of the random part in base 62, most significant
// digit first, padded with zeros.
func checksum(random []byte) string {
	sum := crc32.ChecksumIEEE(random)
	var digits [apiKeyChecksum]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return string(digits[:])
}
