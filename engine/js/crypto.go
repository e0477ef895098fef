package js

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja_nodejs/buffer"
	"github.com/google/uuid"
)

// hashes are the algorithms of createHash and createHmac. The old ones are there
// because signatures of services still use them.
var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224,
	"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// installCrypto defines crypto: randomUUID, and Node's createHash, createHmac
// and timingSafeEqual.
func (s *session) installCrypto() error {
	crypto := s.vm.NewObject()
	for name, fn := range map[string]func(goja.FunctionCall) goja.Value{
		"randomUUID": func(goja.FunctionCall) goja.Value { return s.vm.ToValue(uuid.NewString()) },
		"createHash": func(call goja.FunctionCall) goja.Value {
			return s.hasher("Hash", s.algorithm(call.Argument(0))())
		},
		"createHmac": func(call goja.FunctionCall) goja.Value {
			return s.hasher("Hmac", hmac.New(s.algorithm(call.Argument(0)), s.bytes(call.Argument(1), goja.Undefined())))
		},
		"timingSafeEqual": s.timingSafeEqual,
	} {
		if err := crypto.Set(name, fn); err != nil {
			return err
		}
	}
	return s.global("crypto", crypto)
}

func (s *session) algorithm(name goja.Value) func() hash.Hash {
	text := strings.ReplaceAll(strings.ToLower(name.String()), "-", "")
	h, ok := hashes[text]
	if !ok {
		panic(s.vm.NewTypeError("Digest method not supported: use md5, sha1, sha224, sha256, sha384 or sha512"))
	}
	return h
}

// bytes gives the bytes of a text or of a Buffer, typed array or ArrayBuffer.
func (s *session) bytes(data, encoding goja.Value) []byte {
	if obj, ok := data.(*goja.Object); ok && obj.ClassName() == "DataView" {
		panic(s.vm.NewTypeError("a DataView is not supported here: use a Uint8Array"))
	}
	return buffer.DecodeBytes(s.vm, data, encoding)
}

// hasher is the object with update and digest.
func (s *session) hasher(class string, h hash.Hash) goja.Value {
	obj := s.vm.NewObject()
	done := false
	open := func() {
		if done {
			panic(s.vm.NewTypeError(class + ": digest was already called"))
		}
	}
	methods := map[string]func(goja.FunctionCall) goja.Value{
		"update": func(call goja.FunctionCall) goja.Value {
			open()
			h.Write(s.bytes(call.Argument(0), call.Argument(1)))
			return obj
		},
		"digest": func(call goja.FunctionCall) goja.Value {
			open()
			done = true
			return s.digest(h.Sum(nil), call.Argument(0))
		},
	}
	for name, fn := range methods {
		if err := obj.Set(name, fn); err != nil {
			panic(err)
		}
	}
	return obj
}

// digest gives a sum as a Buffer, or as text in an encoding.
func (s *session) digest(sum []byte, encoding goja.Value) goja.Value {
	if goja.IsUndefined(encoding) || goja.IsNull(encoding) || encoding.String() == "buffer" {
		return buffer.WrapBytes(s.vm, sum)
	}
	switch name := strings.ToLower(encoding.String()); name {
	case "hex":
		return s.vm.ToValue(hex.EncodeToString(sum))
	case "base64":
		return s.vm.ToValue(base64.StdEncoding.EncodeToString(sum))
	case "base64url":
		return s.vm.ToValue(base64.RawURLEncoding.EncodeToString(sum))
	case "latin1", "binary":
		runes := make([]rune, len(sum))
		for i, b := range sum {
			runes[i] = rune(b)
		}
		return s.vm.ToValue(string(runes))
	default:
		panic(s.vm.NewTypeError(fmt.Sprintf("Unknown encoding: %s", clip(name))))
	}
}

// newError makes an error of a kind that goja has no constructor for in Go.
func (s *session) newError(kind, message string) *goja.Object {
	obj, err := s.vm.New(s.vm.Get(kind), s.vm.ToValue(message))
	if err != nil {
		return s.vm.NewTypeError(message)
	}
	return obj
}

// timingSafeEqual compares in a time that depends on the length only.
func (s *session) timingSafeEqual(call goja.FunctionCall) goja.Value {
	for _, arg := range []goja.Value{call.Argument(0), call.Argument(1)} {
		if _, ok := arg.(*goja.Object); !ok {
			panic(s.vm.NewTypeError("timingSafeEqual takes two Buffers or typed arrays"))
		}
	}
	a, b := s.bytes(call.Argument(0), goja.Undefined()), s.bytes(call.Argument(1), goja.Undefined())
	if len(a) != len(b) {
		panic(s.newError("RangeError", "timingSafeEqual takes two inputs of the same length"))
	}
	return s.vm.ToValue(subtle.ConstantTimeCompare(a, b) == 1)
}
