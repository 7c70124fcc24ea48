#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokenizer.json, cases.json and chat.json of this folder with the reference programs (PyPI: tokenizers, jinja2).

    make.py train              a tokeniser like Qwen3's, small, from this repository's own text  -> tokenizer.json
    make.py cases              what it does to hard texts                                         -> cases.json
    make.py chat TEMPLATE      conversations, by the chat template of a Qwen3 folder               -> chat.json
"""
import json, pathlib, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_start|>", "<|box_end|>"]
ADDED = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

OWN_TEXT = """
吾輩は小さな模型である。重みはまだない。どこで学習されたか頓と見当がつかぬ。何でも薄暗い計算機の中で数字を掛けていた事だけは記憶している。
専門家の混合とは、多くの小さな網の中から、言葉ごとに少しだけを選んで使う仕組みである。八ビットの数で計算すれば、速くて、記憶も少なくて済む。
今日は天気がいいから、散歩に行きましょう。東京から京都まで新幹線で二時間ほどかかります。カタカナもひらがなも漢字も混ぜて書きます。
データを読み込み、トークンに分け、モデルに渡します。テストが通れば、次の仕事に進みます。ありがとうございます。よろしくお願いします。
混合专家模型把每个词交给少数几个专家处理，所以计算量小，而参数很多。我们用八位浮点数来训练和推理，速度更快，内存更省。
今天天气很好，我们去公园散步吧。请问这个句子怎么分词？中文没有空格，所以分词要看合并的规则。谢谢大家，再见。
오늘은 날씨가 좋습니다. 작은 모델이 글을 읽고 다음 낱말을 맞춥니다. 한국어는 띄어쓰기가 있습니다. 감사합니다.
Сегодня хорошая погода. Маленькая модель читает текст и угадывает следующее слово. Спасибо.
Das Wetter ist heute schön, und die Größe des Modells ändert nichts an der Rechnung. L'été, où êtes-vous ? ¿Qué pasó, señor?
Μια μικρή γλώσσα. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया। สวัสดีชาวโลก Xin chào thế giới, tiếng Việt có nhiều dấu.
😀😃😄 👍👍🏽 👨‍👩‍👧‍👦 🇯🇵🇨🇳🇰🇷 ❤️ 🎉 🚀 ✅ I'm you're we've they'll he'd it's DON'T I'LL
"""


def tokenizer():
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(here / "tokenizer.json"))


def train():
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    files = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.md"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    texts = [(root / f).read_text() for f in files] + [OWN_TEXT] * 40
    t = Tokenizer(models.BPE(byte_fallback=False))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=False, special=False) for s in ADDED])
    t.save(str(here / "tokenizer.json"), pretty=False)


def texts():
    """(name, bytes, how often they are repeated)"""
    def s(name, text, repeat=1):
        return name, text.encode(), repeat
    yield s("empty", "")
    yield s("ascii", "Hello, world! The model's weights are 8 bits wide; don't panic.")
    for i, line in enumerate(OWN_TEXT.strip().split("\n")):
        yield s(f"own text, line {i}", line)
    yield s("own text", OWN_TEXT)
    yield s("spaces", " ")
    yield s("leading and trailing spaces", "   a  b   ")
    yield s("spaces before a line end", "a   \n  b \r\n\r\n   c\n")
    yield s("spaces at the end", "word    ")
    yield s("ideographic spaces", "a\u3000\u3000b\u00a0c\u2003\u2003d\u202fe\u205ff\u1680g\u0085h\u2028i\u2029j")
    yield s("mongolian vowel separator", "a\u180eb \u180e c  \u180e\u180e\n\u180e")
    yield s("zero width", "a\u200bb\u200cc\u200dd\u2060e\ufefff")
    yield s("tabs in code", "int main(void)\n{\n\treturn 0;\t\t/* x */\n\t\tif (a\t== b)\r\n}\n\n\n")
    yield s("line ends", "a\rb\nc\r\nd\n\re\r\r\nf\n\n\n\r\n")
    yield s("vertical", "a\x0bb\x0cc\x1cd\x1ee")
    yield s("digits", "1 12 123 1234567890 3.14159 1e-10 0xFF ١٢٣ ²³¹ Ⅷ ½ 四五 １２３")
    yield s("apostrophes", "I'm I'M I'm' 'S 's 'T 't'Re 'rE 'VE 'm 'LL 'lL 'd'D can't CAN'T ''s 'sx 'tx 'llama 'x")
    yield s("long s and kelvin", "it'\u017f IT'\u017fX '\u212a '\u017f\u017f \u017ft 'l\u017f \u212aelvin \u212b")
    yield s("curly apostrophes", "don\u2019t I\u2019m \u2018s")
    yield s("combining marks", "e\u0301 a\u0308\u0304 o\u0302\u0301 n\u0303 A\u030a q\u0307\u0323 q\u0323\u0307 \u0301x  \u0301")
    yield s("marks out of order", "a\u0315\u0300\u05ae\u0327b a\u0f74\u0f72\u0f71 \u1100\u0300\u1161")
    yield s("composition exclusions", "\u0958\u0344\u2adc\ufb1d\U0001d15e\u212b\u2126\uf900\u0374\u037e\u0387\u1fef")
    yield s("composed kana", "か\u3099 は\u309aひ\u3099 ｶﾞ が")
    yield s("hangul jamo", "\u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173\u11af 가\u11a8 \u1100 \u1161 \u11a8 각\u11a8 \ua960\ud7b0")
    yield s("indic", "\u0995\u09c7\u09be \u0b47\u0b56 \u0bc6\u0bbe \u0cca \u0dd9\u0dca \u0928\u093c \u1025\u102e \u09c7\u0300\u09be")
    yield s("vietnamese in nfd", "tie\u0302\u0301ng Vie\u0323\u0302t e\u0302\u0323 o\u031b\u0301")
    yield s("zwj emoji", "👨‍👩‍👧‍👦👩🏽‍🚀🏳️‍🌈❤️‍🔥 👍🏿👍🏻 ☺︎☺️ #️⃣1️⃣ 🇯🇵🇯🇵🇯 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f")
    yield s("newer letters", "\U0002ebf0\U0002ee5d \U00031350\U000323af \u1c89\u1c8a\ua7cb\ua7da\U00010d4a \U00010d40\U0001e5f1 \U000105c0")
    yield s("unassigned and private", "\u0378 \ue000\uf8ff \U000f0000\U0010ffff \ufdd0 \uffff\ufffe")
    yield s("younger than the normaliser", "a\u1df6\u033a \U0001e135\u1baa \u0328\u1acc x\u1acc\u0328 \u0345\ua82c \U00011935\U00011930 "
            "\U000105d2\u0307 \u302b\U00016ff0 \uac00\u11a7 \uac00\u11a8 \U00016d67\U00016d67 q\u0301\U0001e08f\u0323")
    yield s("controls", "".join(map(chr, range(32))) + "\x7f" + "".join(map(chr, range(128, 161))))
    yield s("nul", "a\0b\0\0 \0c\n\0")
    yield s("latin-1", "".join(map(chr, range(161, 256))))
    yield s("bidi", "\u202eabc\u202c \u2066x\u2069 אבג\u05b8 العَرَبِيَّة")
    yield s("punctuation", "!!!???...---___***\n\n((a))[[b]]{{c}} a.b,c;d:e \"q\" `x` ~~ @@ ## $$ %% ^^ && ** ++ == || \\\\ // <<>>")
    yield s("punctuation before lines", " ...\n\n ;;\r\n,\n x")
    yield s("special tokens", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nHello<|im_end|><|endoftext|>")
    yield s("special tokens side by side", "<|im_end|><|im_end|><think></think><think><|endoftext|>")
    yield s("special tokens in words", "a<|im_end|>b <think>c </think> d  <|endoftext|>  e")
    yield s("partial special tokens", "<|im_end|<|im_end|> <|im_end <|im_ <| < |im_end|> <<|im_start|>> <thin <think <think>> </thi <|IM_END|>")
    yield s("marks behind special tokens", "<|im_end|>\u0301e\u0301<think>\u0301")
    yield s("tool tokens", "<tool_call>\n{\"name\": \"f\"}\n</tool_call><tool_response>1</tool_response>")
    yield s("long word", "internationalcompressor", 450)
    yield s("long word of different letters", "thequickbrownfoxjumpsoverthelazydog", 300)
    yield s("long word without merges", "zqxjkvb", 1500)
    yield s("long kanji word", "専門家混合模型", 500)
    yield s("many spaces", " ", 5000)
    yield s("many lines", "\n", 3000)
    yield s("many spaces and a letter", "        x", 300)
    yield s("many marks", "\u0323\u0307", 800)
    yield s("many digits", "0123456789", 200)
    yield s("many dashes", "-", 3000)
    yield s("many emoji", "👨‍👩‍👧", 200)
    yield s("word at the short limit", "abcdefgh" * 6)
    yield s("word over the short limit", "abcdefgh" * 6 + "i")
    invalid = {
        "lone continuation": b"a\x80b\xbf\xbfc", "lone first bytes": b"\xc3 \xe3 \xf0 a\xc3", "cut characters": b"\xe3\x81 \xf0\x9f\x98 \xe3\x81\xf0\x9f",
        "overlong": b"\xc0\x80 \xc1\xbf \xe0\x80\x80 \xf0\x80\x80\x80 \xe0\x9f\xbf", "surrogates": b"\xed\xa0\x80\xed\xbf\xbf \xed\x9f\xbf",
        "beyond": b"\xf4\x90\x80\x80 \xf5\x80\x80\x80 \xff\xfe\xfd \xf4\x8f\xbf\xbf", "invalid in a token": b"<|im_\xffend|><|im_end|>\xff",
        "all bytes": bytes(range(256)), "all bytes, twice": bytes(b for i in range(256) for b in (i, i)),
        "ends in the middle": "日本".encode()[:-1], "invalid beside marks": b"e\xff\xcc\x81e\xcc\x81\xcc",
    }
    for name, b in invalid.items():
        yield name, b, 1


def runs(ids):
    """The shortest flat list of [how often, n, id 1 ... id n] that a greedy search over periods finds."""
    out, i = [], 0
    def add(times, part):
        if times == 1 and out and out[-1][0] == 1:
            out[-1][1].extend(part)
        else:
            out.append((times, list(part)))
    while i < len(ids):
        best = (1, 1)
        for n in range(1, 130):
            times = 1
            while ids[i + times * n:i + (times + 1) * n] == ids[i:i + n]:
                times += 1
            if times > 2 and times * n > best[0] * best[1]:
                best = (times, n)
        add(best[0], ids[i:i + best[1]])
        i += best[0] * best[1]
    return [x for times, part in out for x in [times, len(part), *part]]


def cases():
    t, everything = tokenizer(), []
    plain = json.loads((here / "tokenizer.json").read_text())
    plain["added_tokens"] = []
    from tokenizers import Tokenizer
    p = Tokenizer.from_str(json.dumps(plain))
    for name, raw, repeat in texts():
        text = (raw * repeat).decode("utf-8", errors="replace")
        ids = t.encode(text, add_special_tokens=False).ids
        back = t.decode(ids, skip_special_tokens=False)
        one = {"name": name, "hex": raw.hex(), "repeat": repeat, "runs": runs(ids)}
        if back.encode() != raw * repeat:
            one["back"] = back
        if "<" in text:
            one["plain_runs"] = runs(p.encode(text, add_special_tokens=False).ids)
            one["visible"] = t.decode(ids, skip_special_tokens=True)
        everything.append(one)
    write("cases.json", everything)


def conversations():
    def m(role, content):
        return {"role": role, "content": content}
    yield [m("user", "Hi")]
    yield [m("system", "Be brief."), m("user", "Hi")]
    yield [m("user", "Hi"), m("assistant", "Hello"), m("user", "Again")]
    yield [m("user", "1"), m("assistant", "<think>\nold thought\n</think>\n\nanswer"), m("user", "2")]
    yield [m("user", "1"), m("assistant", "<think>\nfresh\n</think>\n\nanswer")]
    yield [m("user", "1"), m("assistant", "no thought")]
    yield [m("user", "1"), m("assistant", "\n\nno thought\n")]
    yield [m("user", "1"), m("assistant", "<think>\n\n\n a \n\n</think>\n\n\n\n b \n")]
    yield [m("user", "1"), m("assistant", "a</think>b</think>\nc<think>d")]
    yield [m("user", "1"), m("assistant", "<think>x<think>y</think>z"), m("user", "2"), m("assistant", "<think>x<think>y</think>z")]
    yield [m("user", "1"), m("assistant", "<think>only opened")]
    yield [m("user", "1"), m("assistant", "</think>")]
    yield [m("user", "1"), m("assistant", "<think></think>")]
    yield [m("user", "1"), m("assistant", "<think>\n</think>\n"), m("tool", "r")]
    yield [m("user", "q"), m("assistant", "<think>\ncall\n</think>\n\nf()"), m("tool", "one"), m("tool", "two"), m("assistant", "done")]
    yield [m("user", "q"), m("assistant", "plain call"), m("tool", "one"), m("assistant", "<think>t</think>done"), m("user", "more")]
    yield [m("user", "q"), m("assistant", "x"), m("user", "<tool_response>\nr\n</tool_response>"), m("assistant", "<think>k</think>y")]
    yield [m("user", "q"), m("user", "<tool_response>r"), m("assistant", "<think>k</think>y")]
    yield [m("user", "<tool_response></tool_response>"), m("assistant", "<think>k</think>y"), m("assistant", "<think>l</think>z")]
    yield [m("system", "a"), m("system", "b"), m("user", "c")]
    yield [m("user", "a"), m("system", "late"), m("user", "c")]
    yield [m("assistant", "<think>t</think>first"), m("user", "c")]
    yield [m("assistant", "alone")]
    yield [m("system", "alone")]
    yield [m("tool", "alone")]
    yield [m("user", ""), m("assistant", ""), m("user", "")]
    yield [m("user", "こんにちは 👍\n\n<|im_end|>"), m("assistant", "<think>\n考え中\n</think>\n\nはい")]


def chat(template):
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    text = pathlib.Path(template).read_text()
    text = json.loads(text)["chat_template"] if template.endswith(".json") else text
    compiled = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]).from_string(text)
    everything = []
    for messages in conversations():
        one = {"messages": messages}
        one["text"] = compiled.render(messages=messages, add_generation_prompt=False)
        one["prompt"] = compiled.render(messages=messages, add_generation_prompt=True)
        one["no_thinking"] = compiled.render(messages=messages, add_generation_prompt=True, enable_thinking=False)
        everything.append(one)
    write("chat.json", everything)


def write(name, everything):
    lines = ",\n".join(json.dumps(one, ensure_ascii=True, separators=(",", ":")) for one in everything)
    (here / name).write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    {"train": train, "cases": cases, "chat": chat}[sys.argv[1]](*sys.argv[2:])
